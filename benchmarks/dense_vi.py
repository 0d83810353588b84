"""Dense mean-field VI of a ResNet on CIFAR-10, through the public names.

python benchmarks/dense_vi.py --root DATA --epochs 60 --seed 0
"""

from cifar import measure, open_sets, parser, settings, train
from record import append_result

import pocketbayes as pb


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--seed", type=int, default=0)
    a = made.parse_args()
    sets = open_sets(a)
    method = pb.MeanField(
        beta=a.beta,
        lr=a.lr,
        std_lr=a.std_lr,
        optimizer="sgd",
        weight_decay=a.weight_decay,
    )
    result, cost = train(a, method, sets, a.seed)
    for estimator in ("lrt", "weight", "mean"):
        record = measure(a, result.model, sets, estimator)
        known = {"model": a.model, "data": "cifar10", "settings": settings(a)}
        append_result("dense_vi", **known, **cost, **record)


if __name__ == "__main__":
    main()
