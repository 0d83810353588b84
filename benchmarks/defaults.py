"""How the defaults of MeanField were chosen: NLL on validation parts of training sets.

    python benchmarks/defaults.py --root DATA --epochs 100

Digits and five UCI regressions (uci_regression.npz under DATA: arrays <set>/data, /features,
/target and /test_<k>). The test rows are left out before anything else happens; of the rest 15%
are held back and judge. One row per setting, a network of 50 hidden units (digits: 128, 128).
"""

import argparse
import itertools
from pathlib import Path

import numpy as np
import torch
from record import append_result
from uci_sets import uci_tables

import pocketbayes as pb
from pocketbayes.data import ImageSet, MemoryLoader, TableSet, open_dataset, with_validation
from pocketbayes.models import build_network

UCI = ("energy", "yacht", "bostonHousing", "concrete", "wine-quality-red")
LRS, STD_LRS = (3e-3, 1e-2), (1e-2, 3e-2)


def validation_nll(data: ImageSet | TableSet, method: pb.MeanField, epochs: int) -> float:
    train, held_back = with_validation(data, 0.15)
    digits = isinstance(data, ImageSet)
    torch.manual_seed(0)
    x, _ = train.batch([0])
    net = build_network(
        "mlp",
        input_shape=x.shape[1:],
        num_outputs=10 if digits else 1,
        hidden=(128, 128) if digits else (50,),
    )
    loader = MemoryLoader(train, 64 if digits else 32, shuffle=True)
    likelihood = train.likelihood
    model = pb.bayesianize_(net)
    pb.fit(model, loader, method, epochs=epochs, likelihood=likelihood, progress=False)
    generator = torch.Generator().manual_seed(0)
    return pb.evaluate(model, MemoryLoader(held_back, 500), generator=generator).nll


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--splits", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--betas", type=float, nargs="+", default=[0.003, 0.01, 0.03])
    a = parser.parse_args()
    torch.set_num_threads(1)
    for beta, lr, std_lr in itertools.product(a.betas, LRS, STD_LRS):
        method = pb.MeanField(beta=beta, lr=lr, std_lr=std_lr)
        found = {"digits": validation_nll(open_dataset("digits", "train"), method, a.epochs)}
        for name in UCI:
            parts = [uci_tables(a.root, name, split)[0] for split in a.splits]
            found[name] = float(np.mean([validation_nll(p, method, a.epochs) for p in parts]))
        append_result(
            "defaults", beta=beta, lr=lr, std_lr=std_lr, epochs=a.epochs, splits=a.splits, nll=found
        )


if __name__ == "__main__":
    main()
