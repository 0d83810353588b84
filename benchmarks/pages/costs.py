"""Time, memory and bytes."""

from pages.common import Row, is_there, made_again, origins, rows, table
from pages.side_by_side import is_again

# What each cost was meant to stay under: (task, network, estimator) -> (time, memory).
LIMITS = {
    ("training step", "resnet20", "weight"): (1.15, 1.2),
    ("training step", "resnet20", "lrt"): (2.6, 2.2),
    ("training step", "mlp", "lrt"): (3.0, None),
    ("prediction, 10 samples against one pass", "resnet20", "weight"): (10.5, None),
    ("prediction, 10 samples against one pass", "mlp", "lrt"): (20.0, None),
}

WHY = """
The MLP's training step misses its goal. At batch 64 its layers are as much weight as work: beside
the doubled matrix products, every step takes two exponentials and some ten passes over 1.9 million
log-stds (variance, KL, their gradients, Adam). Closed-form gradients that keep one tensor instead
of three, exponentials in base 2, in-place passes and threaded noise each helped; another memory
allocator did not. Sharing one exponential between the layer and the KL would help further, but
only by trusting that nobody writes to the parameters in between.
"""


def costs() -> str:
    """Time and memory against the deterministic model."""
    found = rows("costs")
    head = ["task", "network", "estimator", "time", "goal", "peak memory", "goal"]
    origin = f"`{found[0]['command']}` at {found[0]['commit']}, torch {found[0]['torch']}, "
    origin += f"{found[0]['hardware']}, {found[0]['threads']} threads, {found[0]['date']}."
    return (
        "## Costs against the deterministic model\n\n"
        f"{origin} The MLP is 784-1024-1024-10; batch 64 in training, 256 in prediction. Memory "
        "is that of forward and backward, optimiser state excluded.\n\n"
        + table(head, [_cost(row) for row in found])
        + WHY
    )


def _cost(row: Row) -> list[str]:
    """One line of it, with what was meant."""
    key = (row["task"], row["network"], row["estimator"])
    time, memory = LIMITS.get(key, (None, None))
    missed = time is not None and row["time_ratio"] > time
    ratio = row.get("memory_ratio")
    return [
        *key,
        f"{row['time_ratio']:.2f} x",
        "" if time is None else f"{time} x" + (" (missed)" if missed else ""),
        "" if ratio is None else f"{ratio:.2f} x",
        "" if memory is None else f"{memory} x",
    ]


def exchange() -> str:
    """Choosing and re-packing the weights of a sparse posterior."""
    found = rows("exchange")
    lines = [
        [
            row["model"],
            f"{row['density']:g}",
            row["allocation"],
            f"{row['active_weights']:,}",
            f"{row['median_ms']:.0f} ms",
            f"{row['held_bytes'] / 1e6:.1f} MB",
            f"{row['dense_posterior_bytes'] / 1e6:.0f} MB",
        ]
        for row in found
    ]
    head = [
        "network", "density", "allocation", "active weights", "one exchange",
        "parameters, places, optimisers", "dense VI",
    ]  # fmt: skip
    return (
        "## What an exchange of weights takes\n\n"
        "Median time to choose and re-pack at the first, largest exchange (30% of the active "
        f"weights), gradients excluded, on {found[0]['hardware']}. Meant: 60 ms and 20 MB "
        f"at density 0.05.\n\n{origins(found)}\n" + table(head, lines)
    )


def mixture() -> str:
    """Fitting a mixture to the weights, beside faiss."""
    found = rows("mixture")
    lines = [
        [
            f"{row['points'] / 1e6:.1f} M",
            f"{row['components']:,}",
            f"{row['fit_seconds'] + row['assign_seconds']:.1f} s",
            f"{row['nats']:.3f}",
            f"{row['rms_error_in_stds']:.3f}",
            f"{row['peak_bytes'] / 1e9:.2f} GB",
            f"{1e3 * row['merge_seconds']:.0f} ms, to {row['merged_to']:,}",
            f"{row['faiss_seconds']:.1f} s" if "faiss_seconds" in row else "",
            f"{row['faiss_nats']:.3f}" if "faiss_nats" in row else "",
        ]
        for row in found
    ]
    head = [
        "points", "components", "fit and assignment", "nats per point", "rms error, stds",
        "peak memory of the process", "merging", "faiss k-means", "its nats per point",
    ]  # fmt: skip
    return (
        "## A mixture in the (mean, std) plane\n\n"
        f"Synthetic clouds (see the script), on {found[0]['hardware']}. Likelihoods are of a "
        "sample, in units of the cloud's standard deviations; the error is that of a weight's "
        "mean in its own stds. faiss assigns by distance, each cluster gets its covariance.\n\n"
        f"{origins(found)}\n" + table(head, lines)
    )


def stage_two() -> str:
    """From a posterior to a shared model."""
    found = rows("stage_two")
    lines = [
        [
            row["model"],
            row["row"],
            f"{row['seconds']:.1f} s",
            *(f"{row[n]:,}" for n in ("components", "outliers", "blends", "coded_bytes")),
        ]
        for row in found
    ]
    head = ["network", "objective", "time", "components", "outliers", "blends", "coded bytes"]
    return (
        "## What sharing takes\n\n"
        "From posterior to shared model: clustering, merging, blending and packing, of a drawn "
        f"posterior, on {found[0]['hardware']}. Meant: 10 s. `target_bytes` is 1,000,000.\n\n"
        f"{origins(found)}\n" + table(head, lines)
    )


def switch_update() -> str:
    """The share of a training step that switches take."""
    found = rows("switch_update")
    lines = [
        [row["network"], row["granularity"], str(row["batch"]), f"{100 * row['median_share']:.1f}%"]
        for row in found
    ]
    head = ["network", "granularity", "batch", "share of a step"]
    return (
        "## What the update of switches takes\n\n"
        f"On {found[0]['hardware']}. Meant: at most 10%. The MLP is 784-300-100-10.\n\n"
        f"{origins(found)}\n" + table(head, lines)
    )


def data_speed() -> str:
    """Loading and augmenting images."""
    found = rows("data_speed")
    lines = [
        [
            row["hardware"],
            f"{row['load_seconds']:.2f} s",
            f"{row['epoch_seconds']:.3f} s",
            f"{row['images_per_second']:,.0f}",
        ]
        for row in found
    ]
    head = ["where", "loading", "an augmented epoch", "images per second"]
    return (
        "## Data, CIFAR-10\n\n"
        "Reading the training set from .npz, then one epoch of crops, mirrors and normalisation "
        "in batches of 512 on the device itself. Meant: 200,000 images/s on one H200, 5,000 on 2 "
        f"cores.\n\n{origins(found)}\n" + table(head, lines)
    )


def inference() -> str:
    """Prediction with shared weights, against their parent."""
    found = rows("inference")
    base = {(r["hardware"], r["commit"]): r["median_seconds"] for r in found
            if r["row"] == "bayes-by-backprop"}  # fmt: skip
    lines = [
        [
            row["hardware"], row["commit"], row["row"], f"{row['images']:,} x {row['samples']}",
            f"{row['median_seconds']:.2f} s",
            f"{base[row['hardware'], row['commit']] / row['median_seconds']:.2f} x",
        ]
        for row in found
    ]  # fmt: skip
    head = ["machine", "commit", "row", "images x samples", "median time", "speed"]
    return (
        "## Prediction with shared weights\n\n"
        "ResNet-18 against its mean-field parent in the same process. The paper reports 5.8 x; "
        "this is not reached. At this size a GPU waits for the CPU that starts its computations: "
        "at the first two commits a dozen small ones per layer and sample made shared weights "
        "slower than Bayes by Backprop. From 04d0db7 on all weights are drawn at once, and lie in "
        "memory as the images do; both networks then run the same convolutions, so that not much "
        "more can be gained. At 16e66d4 twelve other processes kept the CPU busy, and all rows "
        "were slower. `lrt` runs two convolutions per layer.\n\n"
        f"{origins(found)}\n" + table(head, lines)
    )


def _file_of(row: Row) -> tuple[str, int]:
    return row["file"], row["file_bytes"]


def prediction() -> str:
    """Models from their files, on machines of a pocket's size."""
    compared = rows("side_by_side") if is_there("side_by_side") else []
    again = made_again("side_by_side")
    compared += [row for row in again if any(is_again(row, first) for first in compared)]
    shown = {_file_of(row) for row in compared}
    found = [row for row in rows("prediction") if _file_of(row) not in shown]
    head = ["machine", "network", "file", "file, bytes", "prediction", "images x samples", "time"]
    lines = [
        [
            row["hardware"], row["model"], row["file"], f"{row['file_bytes']:,}", row["estimator"],
            f"{row['images']:,} x {row['samples']}", f"{row['predict_seconds']:.2f} s",
        ]
        for row in found
    ]  # fmt: skip
    return (
        "## Prediction from files\n\n"
        "The fastest run after a warm-up, without models that are compared above. A "
        "small file takes less to store and to load, not to compute: weights that are drawn are "
        "multiplied as a dense network's are. On the GPU, commits before 06d5e31 took 256 images "
        "at a time, which takes longer.\n\n"
        f"{origins(found)}\n" + table(head, lines)
    )
