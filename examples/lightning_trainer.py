"""Sparse training inside a Lightning Trainer: needs `pip install 'pocketbayes[lightning]'`.

python examples/lightning_trainer.py
"""

import lightning
from torch import nn

import pocketbayes as pb
from pocketbayes.data import MemoryLoader, open_dataset


def main(epochs: int = 20, file: str = "lightning.pocket", **options: object) -> dict[str, float]:
    """Trains a tenth of the weights of a small network, and returns its test metrics."""
    train, test = open_dataset("digits", "train"), open_dataset("digits", "test")
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    module = pb.lightning.BayesianModule(
        pb.bayesianize_(net), pb.Subspace(density=0.2), file=file, num_samples=30
    )
    trainer = lightning.Trainer(max_epochs=epochs, accelerator="auto", **options)
    trainer.fit(module, MemoryLoader(train, 64, shuffle=True))
    return dict(trainer.test(module, MemoryLoader(test, 500), verbose=False)[0])


if __name__ == "__main__":
    print(main())
