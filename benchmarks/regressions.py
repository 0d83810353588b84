"""Why `pocketbayes train` begins regressions with another beta and prior than classifications.

    python benchmarks/regressions.py --root DATA

NLL (in standard deviations of the target) and coverage of the 90% interval on 15% held back from
training sets: two simulated ones and three UCI ones (see defaults.py). No test row is looked at.
"""

import argparse
from pathlib import Path

import torch
from record import append_result
from uci_sets import uci_tables

import pocketbayes as pb
from pocketbayes.data import MemoryLoader, TableSet, open_dataset, with_validation
from pocketbayes.models import build_network

SETTINGS = ((0.01, 0.05), (0.1, 0.05), (0.1, 0.3), (0.3, 0.3))


def measured(data: TableSet, beta: float, prior_std: float, epochs: int) -> pb.Record:
    train, held_back = with_validation(data, 0.15)
    torch.manual_seed(0)
    net = build_network("mlp", input_shape=train.features.shape[1:], num_outputs=1)
    model = pb.bayesianize_(net, prior_std=prior_std)
    loader = MemoryLoader(train, 32, shuffle=True)
    method = pb.MeanField(beta=beta)
    pb.fit(model, loader, method, epochs=epochs, likelihood="gaussian", progress=False)
    generator = torch.Generator().manual_seed(0)
    return pb.evaluate(model, MemoryLoader(held_back, 500), generator=generator)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--epochs", type=int, default=60)
    a = parser.parse_args()
    sets = {name: open_dataset(name, "train") for name in ("friedman", "sparse-linear")}
    sets |= {n: uci_tables(a.root, n, 0)[0] for n in ("energy", "bostonHousing", "yacht")}
    for beta, prior_std in SETTINGS:
        found = {name: measured(data, beta, prior_std, a.epochs) for name, data in sets.items()}
        append_result(
            "regressions",
            beta=beta,
            prior_std=prior_std,
            epochs=a.epochs,
            nll={name: record.nll for name, record in found.items()},
            coverage_90={name: record.coverage_90 for name, record in found.items()},
        )


if __name__ == "__main__":
    main()
