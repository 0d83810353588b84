"""What `predict` tells of the golden programs: tests/golden/answers.json, for every engine.

`python tests/answers.py` (with src and tests on PYTHONPATH) writes it, and only where it is not
there yet. Of each file and each estimator that needs no random numbers it has all fields, for the
inputs that tests/golden/programs.json has.
"""

import json

import torch
from program_models import GOLDEN, KNOWN, network

import pocketbayes as pb
from pocketbayes.layers import head_of, members_of

ANSWERS = GOLDEN / "answers.json"
DRAWS = 30
FIELDS = ("probs", "entropy", "aleatoric", "epistemic", "label", "confidence")


def answers_of(name, known):
    """Of one file: by estimator, what is told."""
    model = pb.load(GOLDEN / f"program-{name}.pocket", network(name))
    x = torch.tensor(known["input"])
    names = ["mean", "moments"] + (["one_pass"] if head_of(model) is not None else [])
    made = {}
    for estimator in names:
        try:
            pred = pb.predict(model, x, DRAWS, estimator=estimator)
        except pb.PocketBayesError:
            continue  # moments have no rule for one of its operations
        fields = {field: getattr(pred, field).double().tolist() for field in FIELDS}
        made[estimator] = fields | {"num_samples": pred.num_samples}
    first = pb.predict(model, x, 2)
    return {"default": first.estimator, "members": len(members_of(model)), "estimators": made}


def main():
    if ANSWERS.exists():
        raise SystemExit(f"{ANSWERS} is there, and golden files are never changed")
    known = json.loads(KNOWN.read_text())
    files = {name: answers_of(name, known[name]) for name in sorted(known)}
    ANSWERS.write_text(json.dumps({"draws": DRAWS, "files": files}) + "\n")


if __name__ == "__main__":
    main()
