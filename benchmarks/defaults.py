"""The search that the defaults come from: thousands of small networks at once.

    python benchmarks/defaults.py --data DATA/regression.npz --settings settings.json

All networks are MLPs of two hidden layers, trained side by side by batched products with the
objective of `fit` (local reparameterisation, Adam, cosine, one noise per output): for each setting,
set and split one. They see only rows that no test part holds, and are measured on a fifth of those.
A setting is a JSON object of `SETTING`'s names; `by_doubt` is a beta in proportion to the NLL of
training batches plus `doubt_kl` KL / N, as a share of the NLL of the class frequencies.
"""

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import append_result
from regression_sets import UNSEEN, Part, opened, set_names
from torch import Tensor

from pocketbayes.prediction.metrics import accuracy, expected_calibration_error

SETTING: dict[str, Any] = {
    "beta": 1.0, "prior": "learned", "prior_std": 1.0, "hyper": 0.0, "lr": 3e-3, "std_lr": 1e-2,
    "warmup": 0.5, "std_share": 0.1, "rate": 0.02, "decay": 0.0, "random": True, "members": 1,
    "noise_lr": 1e-2, "batch": 0, "late": 0.0, "by_doubt": 0.0, "least": 0.0,
    "doubt_kl": 0.0,
}  # fmt: skip
_MOST_BATCH, _MOST_MEASURED, _DRAWS = 128, 1000, 100


class Nets:
    """All networks: one slice of each tensor is a network."""

    def __init__(
        self, jobs: list[dict[str, Any]], parts: list[Part], width: int, device: str, outputs: int
    ) -> None:
        self.outputs = outputs
        self.jobs, self.device = jobs, device
        inputs = [part.x.shape[1] for part in parts]
        self.sizes = torch.tensor([len(part.x) for part in parts], device=device)
        self.x = padded([part.x for part in parts], device)
        self.y = padded([part.y for part in parts], device)
        self.x_test = padded([part.x_test[:_MOST_MEASURED] for part in parts], device)
        self.y_test = padded([part.y_test[:_MOST_MEASURED] for part in parts], device)
        self.tested = [min(len(part.x_test), _MOST_MEASURED) for part in parts]
        self.part = torch.tensor([job["part"] for job in jobs], device=device)
        widths, most = [width, width, outputs], max(inputs)
        fans = [[inputs[job["part"]], width, width] for job in jobs]
        generator = torch.Generator().manual_seed(0)
        self.mean, self.bias, self.mask = [], [], []
        for layer, (fan_out, rows) in enumerate(zip(widths, [most, width, width], strict=True)):
            reach = torch.tensor([fan[layer] for fan in fans]).rsqrt()[:, None, None]
            there = (torch.arange(rows) < torch.tensor([fan[layer] for fan in fans])[:, None])[
                :, :, None
            ]
            u = 2 * torch.rand(len(jobs), rows, fan_out, generator=generator) - 1
            b = 2 * torch.rand(len(jobs), 1, fan_out, generator=generator) - 1
            self.mean.append((u * reach * there).to(device))
            self.bias.append((b * reach).to(device))
            self.mask.append(there.float().expand(-1, -1, fan_out).to(device))
        share = self.column("std_share")[:, None, None]
        self.log_std = [
            (share * mean_of(w.square(), m).sqrt()).log().expand_as(w).clone()
            for w, m in zip(self.mean, self.mask, strict=True)
        ]
        self.noise = torch.zeros(len(jobs), 1, 1, device=device)
        self.random = self.column("random")[:, None, None]
        learned = torch.tensor(
            [job["setting"]["prior"] == "learned" for job in jobs], device=device
        )
        rows = torch.tensor([job["setting"]["prior"] == "rows" for job in jobs], device=device)
        self.rows, self.learned = rows[:, None, None], (learned | rows)[:, None, None]
        by_fan = torch.tensor([job["setting"]["prior"] != "fixed" for job in jobs], device=device)
        fixed = self.column("prior_std")[:, None, None].square()
        self.usual = []
        for layer in range(3):
            fan = torch.tensor([float(fan[layer]) for fan in fans], device=device)[:, None, None]
            self.usual.append(torch.where(by_fan[:, None, None], fixed / fan, fixed))
        self.prior = [
            torch.where(self.learned, mean_of(w.square(), m) * (1 + share**2), usual)
            for w, m, usual in zip(self.mean, self.mask, self.usual, strict=True)
        ]

    def column(self, name: str) -> Tensor:
        """One number of each network's setting."""
        return torch.tensor([float(job["setting"][name]) for job in self.jobs], device=self.device)

    def parameters(self) -> list[Tensor]:
        """All that is trained."""
        return [*self.mean, *self.bias, *self.log_std, self.noise]

    def output(self, x: Tensor) -> Tensor:
        """One draw by local reparameterisation."""
        for layer in range(3):
            variance = torch.bmm(x.square(), (2 * self.log_std[layer]).exp() * self.mask[layer])
            x_mean = torch.baddbmm(self.bias[layer], x, self.mean[layer])
            noise = torch.randn_like(x_mean)
            x = x_mean + self.random * noise * (variance + 1e-16).sqrt()
            x = x.relu() if layer < 2 else x
        return x

    def kl(self) -> Tensor:
        """The KL of each network."""
        total = torch.zeros(len(self.jobs), device=self.device)
        for mean, log_std, prior, mask in zip(
            self.mean, self.log_std, self.prior, self.mask, strict=True
        ):
            log_ratio = 2 * log_std - prior.log()
            terms = log_ratio.exp() - 1 - log_ratio + mean.square() / prior
            total = total + (terms * mask).sum((1, 2)) / 2
        return total * self.random[:, 0, 0]

    @torch.no_grad()
    def move_priors(self) -> None:
        """Empirical Bayes, for each tensor or each of its rows."""
        rate, hyper = (self.column(n)[:, None, None] for n in ("rate", "hyper"))
        for k in range(3):
            squares = self.mean[k].square() + (2 * self.log_std[k]).exp()
            total, count = (
                (t * self.mask[k]).sum(2, keepdim=True) for t in (squares, self.mask[k])
            )
            all_total, all_count = (t.sum(1, keepdim=True) for t in (total, count))
            total, count = (
                torch.where(self.rows, *both) for both in ((total, all_total), (count, all_count))
            )
            best = (total + hyper * self.usual[k]) / (count + hyper).clamp_min(1)
            self.prior[k] = torch.where(
                self.learned, torch.lerp(self.prior[k], best, rate), self.prior[k]
            )


def mean_of(values: Tensor, mask: Tensor) -> Tensor:
    return (values * mask).sum((1, 2), keepdim=True) / mask.sum((1, 2), keepdim=True)


def padded(parts: list[Tensor], device: str) -> Tensor:
    rows, columns = (max(part.shape[axis] for part in parts) for axis in (0, 1))
    out = torch.zeros(len(parts), rows, columns)
    for k, part in enumerate(parts):
        out[k, : part.shape[0], : part.shape[1]] = part
    return out.to(device)


def trained(nets: Nets, steps: int) -> None:
    """Adam with a learning rate for each network; batches are drawn with replacement."""
    parameters = [p.requires_grad_() for p in nets.parameters()]
    rates = [nets.column("lr")] * 6 + [nets.column("std_lr")] * 3 + [nets.column("noise_lr")]
    rates = [rate[:, None, None] for rate in rates]
    first, second = ([torch.zeros_like(p) for p in parameters] for _ in range(2))
    beta, warmup, decay, late = (nets.column(n) for n in ("beta", "warmup", "decay", "late"))
    sizes = nets.sizes[nets.part]
    usual = torch.tensor(
        [max(16, min(128, 1 << max(0, (int(n) // 20).bit_length() - 1))) for n in sizes]
    )
    batch = torch.where(nets.column("batch") > 0, nets.column("batch"), usual.to(nets.device))
    by_doubt, least, doubt_kl = (nets.column(n) for n in ("by_doubt", "least", "doubt_kl"))
    doubt, constant = torch.ones_like(beta), constant_nll(nets)
    counted = (torch.arange(_MOST_BATCH, device=nets.device) < batch[:, None]).float()[:, :, None]
    for step in range(steps):
        progress = step / steps
        rows = (torch.rand(len(nets.jobs), _MOST_BATCH, device=nets.device) * sizes[:, None]).long()
        x, y = nets.x[nets.part[:, None], rows], nets.y[nets.part[:, None], rows]
        nll = (each_nll(nets, nets.output(x), y) * counted).sum((1, 2)) / batch
        kl = nets.kl()
        open_nats = (nll + doubt_kl * kl / sizes).detach()
        doubt = torch.lerp(doubt, (open_nats / constant).clamp(max=1), 0.02)
        beta = torch.where(by_doubt > 0, (by_doubt * doubt).clamp_min(least), beta)
        weight = beta * (progress / warmup.clamp_min(1e-9)).clamp(max=1) / sizes
        loss = (nll + weight * kl).sum()
        gradients = torch.autograd.grad(loss, parameters)
        scale = (
            (progress + 1e-3) / 0.051
            if progress < 0.05
            else (1 + math.cos(math.pi * (progress - 0.05) / 0.95)) / 2
        )
        scales = [torch.full_like(late, scale)] * 6 + [late_scale(progress, scale, late)] * 4
        scales = [each[:, None, None] for each in scales]
        with torch.no_grad():
            for k, (p, g) in enumerate(zip(parameters, gradients, strict=True)):
                first[k].lerp_(g, 0.1)
                second[k].lerp_(g.square(), 0.001)
                m, v = first[k] / (1 - 0.9 ** (step + 1)), second[k] / (1 - 0.999 ** (step + 1))
                if k < 3:
                    p.mul_(1 - scale * rates[k] * decay[:, None, None])
                p.sub_(scales[k] * rates[k] * m / (v.sqrt() + 1e-8))
        nets.move_priors()


def constant_nll(nets: Nets) -> Tensor:
    """The NLL of the class frequencies; 1 for values, where it is not used."""
    if nets.outputs == 1:
        return torch.ones(len(nets.jobs), device=nets.device)
    entropies = []
    for labels, size in zip(nets.y, nets.sizes, strict=True):
        share = labels[:size, 0].long().bincount(minlength=nets.outputs) / size
        entropies.append(-torch.special.xlogy(share, share).sum())
    return torch.stack(entropies)[nets.part]


def late_scale(progress: float, scale: float, late: Tensor) -> Tensor:
    """Of the rates of stds and noise: whole until `late`, then falling to 0; with 0 as of means."""
    falling = ((1 - progress) / (1 - late)).clamp(max=1)
    rising = min(1.0, (progress + 1e-3) / 0.051)
    return torch.where(late > 0, rising * falling, scale)


def each_nll(nets: Nets, output: Tensor, y: Tensor) -> Tensor:
    if nets.outputs > 1:
        return -output.log_softmax(2).gather(2, y.long()) + 0 * nets.noise
    error = (y - output) * (-nets.noise).exp()
    return error.square() / 2 + nets.noise + math.log(2 * math.pi) / 2


@torch.no_grad()
def measured_classes(nets: Nets) -> list[dict[str, Any]]:
    """NLL, accuracy and ECE of each network."""
    probs = torch.stack([nets.output(nets.x_test[nets.part]).softmax(2) for _ in range(30)]).mean(0)
    found = []
    for k, job in enumerate(nets.jobs):
        rows = nets.tested[job["part"]]
        p, y = probs[k, :rows], nets.y_test[job["part"], :rows, 0].long()
        nll = -p.gather(1, y[:, None]).clamp_min(1e-30).log().mean()
        scores = {"accuracy": accuracy(p, y), "ece": expected_calibration_error(p, y)}
        found.append({"job": k, "nll": float(nll), **scores})
    return found


@torch.no_grad()
def measured_values(nets: Nets) -> list[dict[str, Any]]:
    """NLL, RMSE and coverage of each network; members of an ensemble count as one."""
    x = nets.x_test[nets.part]
    draws = torch.stack([nets.output(x)[:, :, 0] for _ in range(_DRAWS)]).double()
    variance = (2 * nets.noise[:, 0, 0]).exp().double()
    found, k = list[dict[str, Any]](), 0
    while k < len(nets.jobs):
        job, members = nets.jobs[k], int(nets.jobs[k]["setting"]["members"])
        rows = nets.tested[job["part"]]
        y = nets.y_test[job["part"], :rows, 0].double()
        f = draws[: _DRAWS if job["setting"]["random"] else 1, k : k + members, :rows]
        v = variance[k : k + members, None].expand_as(f).flatten(0, 1)
        f = f.flatten(0, 1)
        density = -((y - f).square() / v + (2 * math.pi * v).log()) / 2
        rank = torch.special.ndtr((y - f) / v.sqrt()).mean(0)
        found.append(
            {
                "job": k,
                "nll": float(math.log(len(f)) - density.logsumexp(0).mean()),
                "coverage_90": float(((rank - 0.5).abs() <= 0.45).double().mean()),
                "rmse": float((y - f.mean(0)).square().mean().sqrt()),
            }
        )
        k += members
    return found


def labelled(path: Path, name: str, split: int, validation: bool) -> Part:
    """NAME or NAME-ROWS of a file of classes: a fifth, or 2,000 rows, measures; ROWS train."""
    name, _, rows = name.partition("-")
    with np.load(path) as file:
        x, y = file[f"{name}/x"], file[f"{name}/y"]
    is_image, x = x.dtype == np.uint8, x.astype(float)
    order = np.random.default_rng(split).permutation(len(y))
    test, train = np.split(order, [min(len(y) // 5, 2000)])
    train = train[: int(rows or len(train))]
    spread = x[train].std(0)
    least = 0.1 * spread.mean() if is_image else 0.0  # pixels that are mostly dark stay small
    x = (x - x[train].mean(0)) / np.maximum(np.where(spread > 0, spread, 1), least)
    pairs = [(torch.tensor(x[i]).float(), torch.tensor(y[i, None]).float()) for i in (train, test)]
    return Part(*pairs[0], *pairs[1], 1.0)


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--data", type=Path, required=True)
    made.add_argument("--settings", type=Path, required=True)
    made.add_argument("--sets", nargs="*")
    made.add_argument("--classes", action="store_true")
    made.add_argument("--splits", type=int, nargs="+", default=[0, 1])
    made.add_argument("--steps", type=int, default=5000)
    made.add_argument("--width", type=int, default=64)
    a = made.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    sets = a.sets or [name for name in set_names(a.data) if name not in UNSEEN]
    places = [(name, split) for name in sets for split in a.splits]
    outputs, settings = 10 if a.classes else 1, json.loads(a.settings.read_text())
    parts = [
        (labelled if a.classes else opened)(a.data, name, split, True) for name, split in places
    ]
    jobs = [
        {"part": part, "setting": SETTING | given, "given": given}
        for given in settings
        for part in range(len(parts))
        for _ in range(int(given.get("members", 1)))
    ]
    nets = Nets(jobs, parts, a.width, device, outputs)
    trained(nets, a.steps)
    rows = (measured_classes if a.classes else measured_values)(nets)
    for given in settings:
        chosen = [row for row in rows if jobs[row["job"]]["given"] == given]
        figures = [name for name in chosen[0] if name != "job"]
        by_set = {
            name: {
                figure: sum(r[figure] for r in chosen if where(jobs, places, r) == name)
                / len(a.splits)
                for figure in figures
            }
            for name in {place[0] for place in places}
        }
        append_result("defaults_search", setting=given, steps=a.steps, splits=a.splits, sets=by_set)


def where(jobs: list[dict[str, Any]], places: list[tuple[str, int]], row: dict[str, Any]) -> str:
    """The set that a row is of."""
    return places[jobs[row["job"]]["part"]][0]


if __name__ == "__main__":
    main()
