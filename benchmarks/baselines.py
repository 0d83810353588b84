"""What a Bayesian network is measured against, on CIFAR-10: one row per method.

    python benchmarks/baselines.py --root DATA --methods deterministic mc-dropout --epochs 60

Plain training, MC dropout, a deep ensemble and Bayes by Backprop, with one network, optimiser and
number of epochs. Each model is stored, loaded back from its file, and then measured; the record is
that of the last epoch, and the test set chooses nothing.
"""

from cifar import measure, open_sets, parser, reopened, train
from record import append_result

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
    made.add_argument("--seed", type=int, default=0)
    a = made.parse_args()
    sets = open_sets(a)
    for row in a.methods:
        name, own, estimator, options = ROWS[row]
        own = own | ({"beta": a.beta, "std_lr": a.std_lr} if name == "mean-field" else {})
        method = METHODS[name](optimizer="sgd", lr=a.lr, weight_decay=a.weight_decay, **own)
        result, cost = train(a, method, sets, a.seed, estimator, **options)
        stored, size = reopened(result.model, sets.device)
        append_result(
            "baselines",
            row=row,
            model=a.model,
            data="cifar10",
            epochs=a.epochs,
            seed=a.seed,
            method=method.settings(),
            options=options,
            weights=size.weights,
            file_bytes=size.bytes,
            **cost,
            **measure(a, stored, sets),
        )


if __name__ == "__main__":
    main()
