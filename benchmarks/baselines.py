"""What a Bayesian network is measured against, on CIFAR-10: one row per method.

    python benchmarks/baselines.py --root DATA --methods deterministic mc-dropout --epochs 60

Plain training, MC dropout, a deep ensemble and Bayes by Backprop, with one network, optimiser and
number of epochs. Each model is stored, loaded back from its file, and then measured, once with each
of `--predictives`; the record is that of the last epoch, and the test set chooses nothing: settings
are chosen with `--validation`, whose rows go to a table of their own.
"""

import argparse

from cifar import Sets, measure, open_sets, parser, settings, train
from record import append_result
from stored import reopened

from pocketbayes.methods import METHODS

# By row: method, its own settings, estimator, options of the network.
ROWS = {
    "deterministic": ("deterministic", {}, "lrt", {}),
    "mc-dropout": ("mc-dropout", {}, "lrt", {"dropout": 0.1}),
    "deep-ensemble": ("deep-ensemble", {"members": 5}, "lrt", {}),
    "bayes-by-backprop": ("mean-field", {}, "weight", {}),
    "mean-field": ("mean-field", {}, "lrt", {}),
}


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--methods", nargs="+", choices=ROWS, default=list(ROWS))
    made.add_argument("--predictives", nargs="+", choices=("lrt", "weight", "mean"))
    made.add_argument("--seed", type=int, default=0)
    a = made.parse_args()
    sets = open_sets(a)
    for row in a.methods:
        run(a, sets, row)


def run(a: argparse.Namespace, sets: Sets, row: str) -> None:
    """One network, stored, loaded and measured."""
    name, own, estimator, options = ROWS[row]
    own = own | ({"beta": a.beta, "std_lr": a.std_lr} if name == "mean-field" else {})
    method = METHODS[name](optimizer="sgd", lr=a.lr, weight_decay=a.weight_decay, **own)
    result, cost = train(a, method, sets, a.seed, estimator, **options)
    stored, size = reopened(result.model, sets.device)
    known = {"row": row, "model": a.model, "data": a.data, "epochs": a.epochs, "seed": a.seed}
    known |= {"method": method.settings(), "options": options}
    known |= {"settings": settings(a), "weights": size.weights, "file_bytes": size.bytes}
    for predictive in a.predictives or [None]:
        found = measure(a, stored, sets, predictive)
        append_result("baselines_search" if a.validation else "baselines", **known, **cost, **found)


if __name__ == "__main__":
    main()
