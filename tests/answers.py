"""What `predict` tells of the golden programs: tests/golden/answers.json, for every engine.

`python tests/answers.py` (with src and tests on PYTHONPATH) adds files that it does not have yet,
and never changes what it has. Of each file and each estimator that needs no random numbers it has
all fields, for the inputs that tests/golden/programs.json has; of values and labels also what many
draws of weights tell, which every runtime draws by its own numbers.
"""

import json

import torch
from program_models import GOLDEN, KNOWN, OTHERS, network

import pocketbayes as pb
from pocketbayes.layers import head_of, members_of
from pocketbayes.prediction import ValuePrediction

ANSWERS = GOLDEN / "answers.json"
DRAWS, MANY = 30, 20_000
LEVEL = 0.9
FIELDS = ("probs", "entropy", "aleatoric", "epistemic", "label", "confidence")
OF_VALUES = ("mean", "std", "aleatoric", "epistemic")


def told(pred):
    """All fields of a prediction, as lists."""
    if not isinstance(pred, ValuePrediction):
        return {field: getattr(pred, field).double().tolist() for field in FIELDS}
    fields = {field: getattr(pred, field).double().tolist() for field in OF_VALUES}
    low, high = pred.interval(LEVEL)
    return fields | {"lower": low.double().tolist(), "upper": high.double().tolist()}


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
        made[estimator] = told(pred) | {"num_samples": pred.num_samples}
    first = pb.predict(model, x, 2)
    found = {"default": first.estimator, "members": len(members_of(model)), "estimators": made}
    return found | ({"draws": drawn(model, x)} if name in OTHERS else {})


def drawn(model, x):
    """Means over many draws of weights, and their variance over draws."""
    seed = torch.Generator().manual_seed(0)
    pred = pb.predict(model, x, MANY, seed, estimator="weight", keep_samples=True)
    mean = pred.mean if isinstance(pred, ValuePrediction) else pred.probs
    return {
        "num_samples": pred.num_samples,
        "mean": mean.double().tolist(),
        "variance": pred.samples.double().var(0).tolist(),
        "aleatoric": pred.aleatoric.double().tolist(),
        "epistemic": pred.epistemic.double().tolist(),
    }


def main():
    known, files = json.loads(KNOWN.read_text()), {}
    if ANSWERS.exists():
        files = json.loads(ANSWERS.read_text())["files"]
    new = {name: answers_of(name, known[name]) for name in sorted(known) if name not in files}
    made = {"draws": DRAWS, "level": LEVEL, "files": files | new}
    ANSWERS.write_text(json.dumps(made) + "\n")
    print("added:", ", ".join(new) or "nothing")


if __name__ == "__main__":
    main()
