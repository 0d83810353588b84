"""What a pass of the C engine costs, in passes of torch's plain eager network in the same process.

    python benchmarks/runtime.py --networks mlp lenet5 resnet20 resnet18
    python benchmarks/runtime.py --int8 --networks "mlp, 1,000 hidden" lenet5 resnet20 resnet18
    python benchmarks/runtime.py --file half.pocket --about WORDS --beside resnet18 --threads 1 2

A row is the median of ratios to the plain dense pass of the same shapes that was timed just before,
on one thread. Weights are random, and of a density one by one at random: time depends on that only.
The engine is compiled here, by the system's compiler. With --starts, from a file instead: a row of
results/runtime_starts.jsonl has seconds from the start of a process's imports to the first answer,
and milliseconds for an example, of `predict` and of pocketbayes-lite, which must be installed.

With --int8, dense networks by the mean, in float and by 8-bit products: ratios of the fastest
turns, by the clock, to the plain pass's.

With --file, a .pocket file through pocketbayes-lite, on as many threads as torch: ratios, by the
clock, to a plain dense network (--beside): to its bare pass and to `pb.predict` with it; then from
file to answer, which reads the file and predicts once, to the same of the plain network's file.
"""

import argparse
import copy
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from record import append_result
from torch import Tensor, nn

import pocketbayes as pb
from pocketbayes.codec.state import plain_state
from pocketbayes.deploy.timing import timed
from pocketbayes.layers import update_description
from pocketbayes.models import build_network
from pocketbayes.posteriors import as_point
from pocketbayes.programs import encoded, weight_names
from pocketbayes.tracing import inputs_of, program_of

sys.path[:0] = [str(Path(__file__).parents[1] / "tests" / folder) for folder in ("", "engine")]
from built import CFacts, Engine, compiled, described, file_of  # noqa: E402

WIDE = "mlp, 1,000 hidden"
SHAPES = {"mlp": (64,), WIDE: (64,), "lenet5": (1, 28, 28)}
HIDDEN = {"mlp": (64, 64), WIDE: (1000, 1000)}


def network(name: str) -> nn.Module:
    torch.manual_seed(0)
    options = {"hidden": HIDDEN[name]} if name in HIDDEN else {}
    shape = SHAPES.get(name, (3, 32, 32))
    return build_network(name.split(",")[0], input_shape=shape, num_outputs=10, **options)


def engine_for(
    library: object, net: nn.Module, x: Tensor, density: float, **options: bool
) -> tuple[Engine, nn.Module]:
    """The network with random weights of this density in both, and its Bayesian program."""
    made, kept, weights = np.random.default_rng(0), [], []
    model = pb.bayesianize_(net, std_init=0.01)
    posteriors, state = dict(pb.named_posteriors(model)), plain_state(model)
    program = program_of(model, inputs_of((x,)), weight_names(posteriors, state))
    for name, q in posteriors.items():
        mean = q.moments()[0].detach().numpy().copy()
        index = np.flatnonzero(made.random(mean.size) < density)
        index = None if density == 1 or mean.ndim < 2 else index.astype(np.uint32)
        numbers = mean.ravel() if index is None else mean.ravel()[index]
        weights.append(
            described(name, mean.shape, numbers, kept, np.full(len(numbers), 0.01), index)
        )
        means = np.zeros(mean.size, np.float32)
        means[slice(None) if index is None else index] = numbers
        q.mean.data.copy_(torch.from_numpy(means.reshape(mean.shape)))
    for name, tensor in state.items():
        weights.append(described(name, tensor.shape, tensor.detach().float().numpy(), kept))
    facts = CFacts(likelihood=b"categorical", is_local=1)
    return Engine(library, file_of(weights, encoded(program)), kept, facts, 30, **options), model


def ratio(
    work: Callable[[], object], plain: Callable[[], object], budget: float
) -> tuple[float, float]:
    """Medians of seconds of `work` over those of `plain`, in turns, and of these."""
    work(), plain()
    found, base, end = list[float](), list[float](), time.perf_counter() + budget
    while len(found) < 5 or time.perf_counter() < end:
        base.append(seconds(plain))
        found.append(seconds(work) / base[-1])
    return statistics.median(found), statistics.median(base)


def fastest(works: dict[str, Callable[[], object]], budget: float) -> dict[str, float]:
    """Seconds by the clock of each, in turns: whoever shares the machine only makes them longer."""
    found, turns, end = dict.fromkeys(works, float("inf")), 0, time.perf_counter() + budget
    while turns < 6 or time.perf_counter() < end:
        for name, work in works.items():
            begin = time.perf_counter()
            work()
            found[name] = min(found[name], time.perf_counter() - begin)
        turns += 1
    return found


def seconds(work: Callable[[], object]) -> float:
    begin = time.process_time()
    times = 0
    while times == 0 or time.process_time() - begin < 1e-3:  # the clock is coarse
        work()
        times += 1
    return (time.process_time() - begin) / times


@torch.inference_mode()
def passed(plain: nn.Module, x: Tensor) -> Tensor:
    return plain(x)


def starts(name: str, estimator: str, batches: list[int], budget: float) -> None:
    """Rows of both runtimes, each in a process of its own."""
    shape = SHAPES.get(name, (3, 32, 32))
    model = pb.bayesianize_(network(name).eval(), std_init=0.01, estimator="weight")
    update_description(model, likelihood="categorical")
    x = torch.randn(max(batches), *shape)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{name}.pocket"
        pb.save(model, path, example=x[:1])
        files = {"torch": path, "engine": path}
        for found in timed(files, x.numpy(), estimator=estimator, batches=batches, seconds=budget):
            row = {"network": name, "estimator": estimator} | found.facts()
            append_result("runtime_starts", **row)


def by_int8(library: object, name: str, batches: list[int], budget: float) -> None:
    """Rows of one dense network."""
    plain, shape = network(name).eval(), SHAPES.get(name, (3, 32, 32))
    example = torch.randn(1, *shape)
    engines = {
        way: engine_for(library, network(name).eval(), example, 1, moments=False, int8=on)[0]
        for way, on in (("mean, float", False), ("mean, int8", True))
    }
    for batch in batches:
        x = torch.randn(batch, *shape)
        works: dict[str, Callable[[], object]] = {"plain": partial(passed, plain, x)}
        works |= {way: engine.caller(x.numpy()) for way, engine in engines.items()}
        found = fastest(works, budget)
        for way in engines:
            row = {"network": name, "density": 1, "batch": batch, "estimator": way}
            base = found["plain"]
            append_result("runtime", **row, ratio=found[way] / base, plain_ms=1e3 * base)


def answered(path: Path, threads: int, x: np.ndarray, estimator: str) -> object:
    import pocketbayes_lite as lite

    return lite.load(path, threads).predict(x, estimator)


def answered_by_torch(path: Path, x: Tensor) -> pb.Prediction:
    return pb.predict(pb.load(path), x, estimator="mean", likelihood="categorical")


def of_file(a: argparse.Namespace) -> None:
    """Rows of one file: by threads, batch and estimator."""
    with tempfile.TemporaryDirectory() as folder:
        _of_file(a, Path(folder) / "plain.pocket")


def _of_file(a: argparse.Namespace, stored: Path) -> None:
    import pocketbayes_lite as lite

    facts, shape = pb.inspect(a.file), lite.load(a.file).input_shapes[0]
    plain = build_network(a.beside, input_shape=shape, num_outputs=10).eval()
    model = pb.bayesianize_(copy.deepcopy(plain))
    for name, q in list(pb.named_posteriors(model)):  # `predict` then asks the plain network
        pb.replace_posterior(model, name, as_point(q))
    pb.save(model, stored)
    known = {"file": a.file.name, "about": a.about, "bytes": a.file.stat().st_size}
    known |= {"beside": a.beside, "multiplications": facts.program["multiplications"]["sparse"]}
    for threads, batch in ((t, b) for t in a.threads for b in a.batches):
        torch.set_num_threads(threads)
        engine, x = lite.load(a.file, threads), torch.randn(batch, *shape)
        works: dict[str, Callable[[], object]] = {
            "plain": partial(passed, plain, x),
            "predict": partial(pb.predict, model, x, estimator="mean", likelihood="categorical"),
            "plain from file": partial(answered_by_torch, stored, x),
        }
        for by in a.estimators:
            works[by] = partial(engine.predict, x.numpy(), by)
            works[f"{by} from file"] = partial(answered, a.file, threads, x.numpy(), by)
        found = fastest(works, a.budget)
        for by in a.estimators:
            row = {"batch": batch, "estimator": by, "cores": threads}
            row |= {"ratio": found[by] / found["plain"], "plain_ms": 1e3 * found["plain"]}
            row["ratio_to_predict"] = found[by] / found["predict"]
            row["ratio_from_file"] = found[f"{by} from file"] / found["plain from file"]
            append_result("runtime_files", **known, **row)


def main() -> None:
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("--networks", nargs="+", default=["mlp", "lenet5", "resnet20", "resnet18"])
    made.add_argument("--batches", nargs="+", type=int, default=[1, 64])
    made.add_argument("--densities", nargs="+", type=float, default=[1, 0.05, 0.035])
    made.add_argument("--estimators", nargs="+", default=["mean", "moments"])
    made.add_argument("--budget", type=float, default=3.0, help="seconds for each row")
    made.add_argument("--starts", action="store_true")
    made.add_argument("--int8", action="store_true")
    made.add_argument("--file", type=Path, help="a .pocket file with its program")
    made.add_argument("--about", default="", help="what the file is, for its row")
    made.add_argument("--beside", default="resnet18", help="the plain network")
    made.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    a = made.parse_args()
    if a.file:
        of_file(a)
        return
    torch.set_num_threads(1)
    if a.starts:
        for name in a.networks:
            for estimator in a.estimators:
                starts(name, estimator, a.batches, a.budget)
        return
    library = compiled(Path(tempfile.mkdtemp()))
    if a.int8:
        for name in a.networks:
            by_int8(library, name, a.batches, a.budget)
        return
    for name in a.networks:
        for density in a.densities:
            if density < 1 and name == "mlp":
                continue
            plain, shape = network(name).eval(), SHAPES.get(name, (3, 32, 32))
            engine, model = engine_for(
                library, network(name).eval(), torch.randn(1, *shape), density
            )
            for batch in a.batches:
                x = torch.randn(batch, *shape)
                found = engine.predict(x.numpy(), wanted=["outputs"])["outputs"]
                expected = pb.predict(
                    model, x, estimator="mean", likelihood="categorical", single=False
                )
                probs = torch.from_numpy(found).softmax(1)
                assert float((probs - expected.probs).abs().max()) < 1e-4
                for estimator in a.estimators:
                    draws = 30 if estimator == "moments" else 1
                    work = engine.caller(x.numpy(), estimator=estimator, draws=draws)
                    value, base = ratio(work, partial(passed, plain, x), a.budget)
                    row = {"network": name, "density": density, "batch": batch}
                    append_result(
                        "runtime", **row, estimator=estimator, ratio=value, plain_ms=1e3 * base
                    )


if __name__ == "__main__":
    main()
