"""Networks of other libraries: what `bayesianize_` makes of each.

    python benchmarks/zoo.py
    python benchmarks/zoo.py --libraries timm peft --networks resnet lora --seconds 300

zoo_networks.py and zoo_others.py say which: small members of each family, with random weights.
Parameters that
begin as one number, such as factors of layers or the zeros of adapters, get some noise, so that no
branch is cut off. With the usual estimator a conversion is right, and with "weight" by the first
three, if

- the mean network, and draws with stds near 0, give the plain network's outputs, within 1e-4 of
  the largest;
- two draws differ;
- loss and KL have finite gradients by every mean and std, not 0 where the plain network's is not;
- what `load` fills into a fresh network predicts as what was saved, bit for bit;
- `predict` and one step of `fit` work;
- no more than 5% of the numbers in matrices that learn stay deterministic without a warning.

It is refused if the library says why it will not; all else is wrong. Where the library says that
parameters stay deterministic unless `include` names them, they are named, and the same is asked of
that conversion. Each network runs in a process
of its own, forked from one that has imported its library and has never computed.
"""

import argparse
import multiprocessing
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from importlib.metadata import packages_distributions, version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import lightning_fabric  # noqa: F401  # loaded once, not by every child
import torch
from record import append_result
from torch import Tensor, nn
from zoo_networks import LIBRARIES as LARGE
from zoo_networks import Network
from zoo_others import LIBRARIES as SMALL

import pocketbayes as pb
from pocketbayes.layers import drawing_by

LIBRARIES = LARGE | SMALL
CLOSE, MOST_LEFT, DRAWS = 1e-4, 0.05, 3
WORST = ("wrong", "refused", "right")


def main() -> None:
    made = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--libraries", nargs="+", choices=LIBRARIES, default=list(LIBRARIES))
    made.add_argument("--networks", nargs="+", help="only these")
    made.add_argument("--seconds", type=float, default=600, help="for each network")
    a = made.parse_args()
    torch.set_num_threads(1)
    seen = Counter[str]()
    for library in a.libraries:
        found = families_of(library)
        networks = found if isinstance(found, list) else []
        if isinstance(found, str):
            append_result(
                "zoo", library=library, network="all", verdict="not installed", error=found
            )
        for network in networks:
            if not a.networks or network.name in a.networks:
                row = {"version": version_of(library)} | by_itself(network, a.seconds)
                append_result("zoo", library=library, network=network.name, **row)
                seen[row["verdict"]] += 1
    print(dict(seen), file=sys.stderr)
    sys.exit(1 if seen["wrong"] else 0)


def families_of(library: str) -> list[Network] | str:
    """The networks of a library; why there are none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return LIBRARIES[library]()
    except ImportError as error:
        return first_line(error)


def version_of(library: str) -> str:
    """Of what is installed."""
    packages = packages_distributions().get(library, [])
    return version(packages[0]) if packages else ""


def by_itself(network: Network, seconds: float) -> dict[str, Any]:
    """The row of a network, by a process of its own."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=tell, args=(network, sender), daemon=True)
    begin = time.monotonic()
    child.start()
    sender.close()
    row: dict[str, Any] = {"verdict": "wrong", "error": f"no answer in {seconds:g} s"}
    try:
        if receiver.poll(seconds):
            row = receiver.recv()
    except EOFError:
        child.join()
        row = {"verdict": "wrong", "error": f"the process ended with {child.exitcode}"}
    child.kill()
    child.join()
    return row | {"seconds": time.monotonic() - begin}


def tell(network: Network, sender: Connection) -> None:
    """Sends the row."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    try:
        plain = built(network, 0)
        with torch.no_grad():
            called(plain, network)
    except ImportError as error:
        sender.send({"verdict": "not installed", "error": first_line(error)})
        return
    except Exception as error:
        traceback.print_exc()
        sender.send({"verdict": "cannot be built", "error": first_line(error)})
        return
    known = {"class": type(plain).__name__, "weights": sum(p.numel() for p in plain.parameters())}
    sender.send(known | verdict_on(network, [n for n, p in plain.named_parameters() if counts(p)]))


def verdict_on(network: Network, names: list[str]) -> dict[str, Any]:
    """The worse of two estimators', and of all that learns by name where that is advised."""
    rows = [judged(network), judged(network, estimator="weight")]
    worst = min(rows, key=lambda row: WORST.index(row["verdict"]))
    row = {key: worst[key] for key in ("verdict", "error", "bayesian") if key in worst}
    row |= {"warned": rows[0]["said"]} if rows[0].get("said") else {}
    if "include=" not in (rows[0].get("said") or rows[0]["error"]):
        return row
    named = judged(network, include=["*", *names])
    if named["verdict"] == "wrong":
        return row | {"verdict": "wrong", "error": f"include: {named['error']}"}
    told = "; ".join(filter(None, (row["error"], named["error"])))
    return row | {"error": told, "bayesian_by_name": named.get("bayesian", 0.0)}


def judged(network: Network, **options: Any) -> dict[str, Any]:
    """Verdict, share of weights that are Bayesian, and error of one conversion."""
    found: dict[str, Any] = {}
    try:
        found = draws_near_its_mean(network, options)
        has_gradients(network, options)
        if "estimator" not in options:
            comes_back(network, options)
            predicts_and_trains(network, options, found.pop("repeatable"))
    except pb.PocketBayesError as error:
        traceback.print_exc()
        kind = "wrong" if isinstance(error, pb.DataError) else "refused"
        return found | {"verdict": kind, "error": told(options, error)}
    except Exception as error:
        traceback.print_exc()
        return found | {"verdict": "wrong", "error": told(options, error)}
    return found | {"verdict": "right", "error": ""}


def told(options: dict[str, Any], error: Exception) -> str:
    """The error's first line, with its kind where it is not one of ours."""
    estimator = options.get("estimator")
    kind = (
        "" if isinstance(error, pb.PocketBayesError | WrongError) else f"{type(error).__name__}: "
    )
    return f"{estimator + ': ' if estimator else ''}{kind}{first_line(error)}"


def first_line(error: Exception) -> str:
    """In brief."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


class WrongError(Exception):
    """What a conversion is not allowed to do."""


def draws_near_its_mean(network: Network, options: dict[str, Any]) -> dict[str, Any]:
    """The mean and draws with small stds are the plain network, draws differ, little is left."""
    plain = built(network, 0)
    total = sum(p.numel() for p in plain.parameters())
    learning = {n: p.numel() for n, p in plain.named_parameters() if counts(p) and wide(p)}
    with torch.no_grad():
        wanted = called(plain, network)
        repeatable = equal(wanted, called(plain, network, seed=1))
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            model = pb.bayesianize_(plain, **options)
        posteriors = {name: q.shape.numel() for name, q in pb.named_posteriors(model)}
        said = " ".join(str(w.message) for w in heard if "stay deterministic" in str(w.message))
        left = {name: size for name, size in learning.items() if name not in posteriors}
        if sum(left.values()) > MOST_LEFT * sum(learning.values()) and not said:
            raise WrongError(
                f"{len(left)} matrices stay deterministic in silence: {next(iter(left))}"
            )
        with drawing_by(model, "mean"):
            near(called(model, network), wanted, "the mean network")
        if equal(called(model, network), called(model, network, seed=1)):
            raise WrongError("two draws are equal")
        thin = pb.bayesianize_(built(network, 0), **options, std_init=1e-10)
        if repeatable:
            near(called(thin, network), wanted, "a draw with small stds")
    share = sum(posteriors.values()) / total
    return {"bayesian": share, "said": said, "repeatable": repeatable}


def has_gradients(network: Network, options: dict[str, Any]) -> None:
    """Of loss and KL, by every mean and std that the plain network has one for."""
    plain, model = built(network, 0), pb.bayesianize_(built(network, 0), **options)
    try:
        backward(plain, network)
    except (RuntimeError, TypeError):  # some can do so once, or only in training
        plain, model = built(network, 0).train(), model.train()
        backward(plain, network)
    wanted = {n for n, p in plain.named_parameters() if p.grad is not None and p.grad.any()}
    backward(model, network)
    for name, posterior in pb.named_posteriors(model):
        for kind, parameter in posterior.named_parameters():
            if name in wanted and (parameter.grad is None or not parameter.grad.any()):
                raise WrongError(f"the loss does not reach the {kind} of {name}")
    for name, parameter in model.named_parameters():
        if name in wanted and (parameter.grad is None or not parameter.grad.any()):
            raise WrongError(f"the loss does not reach {name}")
    (pb.kl(model) / 1000).backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and not parameter.grad.isfinite().all():
            raise WrongError(f"the gradient of {name} is not finite")
    for name, posterior in pb.named_posteriors(model):
        if any(p.grad is None for p in posterior.parameters()):
            raise WrongError(f"the KL does not reach {name}")


def comes_back(network: Network, options: dict[str, Any]) -> None:
    """What is loaded into another network is the one that was saved."""
    model = pb.bayesianize_(built(network, 0), **options)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        path = Path(folder, "zoo.pocket")
        pb.save(model, path, lossless=True)
        again = pb.load(path, built(network, 1))
        for way in ("mean", None):
            outputs = []
            for each in (model, again):
                with drawing_by(each, way):
                    outputs.append(called(each, network))
            if not equal(*outputs):
                raise WrongError(f"what is loaded predicts otherwise ({way or 'draws'})")


def predicts_and_trains(network: Network, options: dict[str, Any], repeatable: bool) -> None:
    """Draws differ in `predict`, whose mean is the network's; a step of `fit` changes it."""
    if not network.predicts:
        return
    model = Flat(pb.bayesianize_(built(network, 0), **options))
    x = network.example()
    before = {n: t.clone() for n, t in model.named_parameters()}
    pred = pb.predict(model, x, 4, torch.Generator().manual_seed(3), likelihood="gaussian")
    if not (pred.std > 0).any() or not pred.mean.isfinite().all():
        raise WrongError("predict sees no spread, or numbers that are not finite")
    mean = pb.predict(model, x, estimator="mean", likelihood="gaussian").mean
    with torch.no_grad(), drawing_by(model, "mean"):
        if repeatable:
            near([mean], [called(model, network)[0]], "predict")
    targets = torch.zeros(mean.shape)
    batch = {**x, "targets": targets} if isinstance(x, dict) else (*tupled(x), targets)
    pb.fit(model, [batch], epochs=1, likelihood="gaussian", progress=False)
    after = dict(model.named_parameters())
    if all(torch.equal(before[n], after[n]) for n in before):
        raise WrongError("a step of fit changes nothing")
    if not all(after[n].isfinite().all() for n, t in before.items() if t.isfinite().all()):
        raise WrongError("a step of fit makes numbers that are not finite")


class Flat(nn.Module):
    """A network whose first output is one row of numbers for each example."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Tensor, **kwargs: Tensor) -> Tensor:
        """A few of its numbers."""
        return next(numbers_in(self.inner(*args, **kwargs))).flatten(1)[:, :5]


def built(network: Network, seed: int) -> nn.Module:
    """A new one, of which nothing is constant."""
    torch.manual_seed(seed)
    made = network.make().float().eval()
    with torch.no_grad():
        for name, tensor in made.state_dict().items():
            if isinstance(tensor, Tensor) and is_one_number(tensor) and "running_var" not in name:
                tensor.add_(0.1 * torch.randn_like(tensor))
    return made


def is_one_number(tensor: Tensor) -> bool:
    """Whether it is real and the same everywhere."""
    several = tensor.is_floating_point() and tensor.numel() > 1
    return several and bool((tensor == tensor.flatten()[0]).all())


def called(model: nn.Module, network: Network, seed: int = 0) -> list[Tensor]:
    """All numbers that it returns."""
    x = network.example()
    torch.manual_seed(seed)
    output = model(**x) if isinstance(x, dict) else model(*tupled(x))
    found = list(numbers_in(output))
    if not found:
        raise TypeError(f"no tensor in {type(output).__name__}")
    return found


def tupled(x: Any) -> tuple[Any, ...]:
    """Several inputs, or one."""
    return x if isinstance(x, tuple) else (x,)


def numbers_in(output: Any) -> Iterator[Tensor]:
    """Tensors of real numbers, however deep."""
    if isinstance(output, Tensor):
        if output.is_floating_point():
            yield output
        elif output.is_complex():
            yield torch.view_as_real(output)
    elif isinstance(output, dict):
        for item in output.values():
            yield from numbers_in(item)
    elif isinstance(output, list | tuple):
        for item in output:
            yield from numbers_in(item)
    elif is_dataclass(output):
        for field in fields(output):
            yield from numbers_in(getattr(output, field.name))


def backward(model: nn.Module, network: Network) -> None:
    """Adds up gradients of a few passes."""
    for seed in range(DRAWS):
        loss_of(model, network, seed).backward()


def loss_of(model: nn.Module, network: Network, seed: int) -> Tensor:
    """A sum of all outputs, with random factors."""
    outputs = [output for output in called(model, network, seed) if output.requires_grad]
    draw = torch.Generator().manual_seed(9)
    terms = [(o * torch.randn(o.shape, generator=draw)).sum() for o in outputs]
    return torch.stack(terms).sum()


def counts(parameter: Tensor) -> bool:
    """Whether it learns and can have a posterior."""
    return parameter.requires_grad and parameter.is_floating_point()


def wide(parameter: Tensor) -> bool:
    """Whether it is a matrix, not a bias or the factors of a norm."""
    return sum(side > 1 for side in parameter.shape) > 1


def near(found: list[Tensor], wanted: list[Tensor], what: str) -> None:
    """Within 1e-4 of the largest number."""
    for one, other in zip(found, wanted, strict=True):
        apart, size = float((one - other).abs().max()), float(other.abs().max())
        if one.numel() and not apart <= CLOSE * size:
            raise WrongError(f"{what} is off by {apart:.2g} of {size:.2g}")


def equal(found: list[Tensor], wanted: list[Tensor]) -> bool:
    """Bit for bit, or both NaN."""
    pairs = zip(found, wanted, strict=True)
    return all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs)


if __name__ == "__main__":
    main()
