"""A training loop of your own: one loss, one optimiser, and all the rest as usual.

python examples/plain_loop.py
"""

import torch
from torch import nn

import pocketbayes as pb
from pocketbayes.data import MemoryLoader, open_dataset


def main(epochs: int = 20, file: str = "plain_loop.pocket") -> pb.Record:
    """Trains a small network on 8 x 8 pictures of digits, and measures what its file holds."""
    train, test = open_dataset("digits", "train"), open_dataset("digits", "test")
    loader = MemoryLoader(train, 64, shuffle=True)  # any DataLoader will do
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    model = pb.bayesianize_(net)
    optimizer = torch.optim.AdamW(pb.parameter_groups(model, lr=3e-3, weight_decay=0.01))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))
    for epoch in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = pb.loss(model, model(x), y, len(train), progress=epoch / epochs)
            loss.backward()
            optimizer.step()
            schedule.step()
    pb.save(model, file, example=x[:1])
    again = nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    return pb.evaluate(pb.load(file, again), MemoryLoader(test, 500))


if __name__ == "__main__":
    print(main())
