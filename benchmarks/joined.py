"""Several small files as one ensemble: by draws, and by one pass of each.

    python benchmarks/joined.py --root DATA --files 200000-100.pocket 200000-101.pocket

The files are of `ladder.py`, with their one-pass heads. The test set is read once for each row.
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from cifar import open_sets, parser
from corruptions import also_made_worse, with_made_worse
from distillation import SOME
from record import append_result
from torch import nn

import pocketbayes as pb
from pocketbayes.data import MemoryLoader
from pocketbayes.layers import Ensemble
from pocketbayes.prediction import answered, record_of
from pocketbayes.prediction.summaries import class_prediction


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--files", nargs="+", type=Path, required=True)
    made.add_argument("--names", nargs="*", default=list(SOME))
    a = made.parse_args()
    sets, files = open_sets(a), {path.stem: path.stat().st_size for path in a.files}
    known = {"files": list(files), "members": len(files), "file_bytes": sum(files.values())}
    members = [pb.load(path).to(sets.device, memory_format=torch.channels_last) for path in a.files]
    by_one_pass = with_made_worse(partial(together, members), sets, a.names)
    told = {name: value for name, value in by_one_pass.items() if "epistemic" not in name}
    append_result("joined", **known, **told)
    by_draws = also_made_worse(Ensemble(members), sets, a.samples, "weight", a.names)
    append_result("joined", **known, **by_draws)


def together(
    members: list[nn.Module], loader: MemoryLoader, outside: MemoryLoader | None
) -> pb.Record:
    """The record of the mean of what the members say by one pass."""
    is_quick = next(members[0].parameters()).is_cuda
    with torch.autocast("cuda", torch.bfloat16) if is_quick else nullcontext():
        parts = [answered(m, loader, ood_loader=outside, estimator="one_pass") for m in members]
    batches = zip(*(part.predictions for part in parts), strict=True)
    away = mean_of([part.outside for part in parts]) if outside else None
    predictions = [mean_of(batch) for batch in batches]
    return record_of(replace(parts[0], predictions=predictions, outside=away))


def mean_of(predictions: Sequence[Any]) -> pb.Prediction:
    probs = torch.stack([prediction.probs for prediction in predictions]).mean(0)
    return class_prediction(probs.log()[None], "probs", keep_samples=False)


if __name__ == "__main__":
    main()
