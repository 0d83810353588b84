"""What a model consists of and takes: numbers that shared weights hold, multiplications."""

from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from pocketbayes.errors import PocketBayesError
from pocketbayes.layers import Inputs, named_posteriors, require_module, uses_of_weights
from pocketbayes.posteriors import Shared
from pocketbayes.sharing import ENTRY_BITS, coded_bits, outlier_bits


@dataclass(frozen=True)
class SharingSummary:
    """What shared weights consist of; prints as a table.

    Attributes:
        weights: those of the tensors that share, there or not.
        active_weights: those that are there; a sparse network lacks the others.
        components: entries of all codebooks.
        outliers: weights with a mean and std of their own.
        blends: weights between two entries.
        parameters: outliers + blends + 2 components, the paper's count; leaves out the labels.
        stored_scalars: 2 outliers + blends + 2 components, all real numbers there are.
        index_bytes: of the labels as they stand in memory.
        coded_bytes: labels of each tensor at their entropy, outliers and blends with their places,
            and the codebook: what an ideal coder would need, places of a sparse network left out.
    """

    weights: int
    active_weights: int
    components: int
    outliers: int
    blends: int
    parameters: int
    stored_scalars: int
    index_bytes: int
    coded_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(f"{name.replace('_', ' '):<15} {n:>14,}" for name, n in vars(self).items())


def sharing_summary(model: nn.Module) -> SharingSummary:
    """Counts of a model trained by `Sharing`.

    Example:
        >>> print(sharing_summary(model))
    """
    shared = [q for _, q in named_posteriors(model) if isinstance(q, Shared)]
    if not shared:
        raise PocketBayesError("no weights are shared: train with method=Sharing() first")
    components = sum(
        len(codebook) for codebook in {id(q.codebook): q.codebook for q in shared}.values()
    )
    outliers, blends = sum(len(q.outlier) for q in shared), sum(len(q.blend) for q in shared)
    bits = sum(map(_coded_bits, shared)) + ENTRY_BITS * components
    return SharingSummary(
        weights=sum(q.shape.numel() for q in shared),
        active_weights=sum(q.num_active for q in shared),
        components=components,
        outliers=outliers,
        blends=blends,
        parameters=outliers + blends + 2 * components,
        stored_scalars=2 * outliers + blends + 2 * components,
        index_bytes=sum(q.label.numel() * q.label.element_size() for q in shared),
        coded_bytes=round(bits / 8),
    )


@dataclass(frozen=True)
class Multiplications:
    """Multiplications by weights in one pass over one example; prints in words.

    Attributes:
        dense: with all weights, as if none were 0.
        sparse: with those that are there: what a device takes that skips the others.
    """

    dense: int
    sparse: int

    @property
    def ratio(self) -> float:
        """Sparse over dense."""
        return self.sparse / self.dense if self.dense else 1.0

    def __str__(self) -> str:
        return f"{self.dense:,} dense, {self.sparse:,} without zeros ({self.ratio:.1%})"


def multiplications(model: nn.Module, example: Inputs) -> Multiplications:
    """Multiplications of an activation by a weight in one pass; of several draws, each takes these.

    A weight counts once per row, output pixel or token that its layer applies it to: size times
    positions, summed over linear layers, convolutions, attention and recurrent layers. Norms,
    activations and attention's products of activations do not count, nor what draws cost. An
    ensemble counts all its members.

    Args:
        model: a network, converted or not; it is run once, without gradients.
        example: a batch of inputs as the model sees them, x[:1] for instance: a tensor, or several
            in a tuple or, by name, in a dict.

    Example:
        >>> print(multiplications(model, x[:1]))
    """
    require_module(model)
    uses = uses_of_weights(model, example)
    return Multiplications(
        dense=round(sum(use.positions * use.size for use in uses)),
        sparse=round(sum(use.positions * use.active for use in uses)),
    )


def _coded_bits(posterior: Shared) -> float:
    """Bits of one tensor: labels, outliers, and blends (two labels, a share, a place)."""
    outlier_cost = outlier_bits(posterior.num_active)
    label_bits = 16 * posterior.label.element_size()
    of_blends = len(posterior.blend) * (outlier_cost - 32 + label_bits)
    labels = coded_bits(posterior.plain_labels(), len(posterior.codebook))
    return labels + len(posterior.outlier) * outlier_cost + of_blends
