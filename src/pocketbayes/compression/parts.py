"""What a score may prune: the tensors that have it, and the scores of their units."""

from typing import NamedTuple

from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError, require_choice
from pocketbayes.layers import named_posteriors
from pocketbayes.posteriors import (
    MOST_DRAWN_LOG_ODDS,
    MOST_LOG_ODDS,
    Gaussian,
    LogUniform,
    Packed,
    Point,
    Posterior,
    Sparse,
    SparsePoint,
    SpikeSlab,
)
from pocketbayes.sparsity import CRITERIA

SCORES = ("inclusion", "snr", "magnitude")


class Part(NamedTuple):
    """One tensor: the score of each unit that may go, the weights of a unit, and its rank."""

    posterior: Posterior
    score: Tensor
    size: int
    rank: Tensor

    def worth(self) -> Tensor:
        """What the fit loses without each unit, in nats up to a factor.

        Log-odds are nats; of a mean and a std, dropping the weight costs mean^2 / (2 std^2).
        """
        return self.rank if isinstance(self.posterior, SpikeSlab) else self.rank.square()


def chosen_score(model: nn.Module, by: str | None) -> str:
    """What to prune by: as asked, or the first that the model has."""
    found = [q for _, q in named_posteriors(model)]
    if not found:
        raise PocketBayesError("this model has no posterior: call bayesianize_(net) first")
    if by is not None:
        return require_choice(by, "by", SCORES)
    if any(isinstance(q, SpikeSlab) for q in found):
        return "inclusion"
    return "snr" if any(q.is_random for q in found) else "magnitude"


def parts_of(model: nn.Module, by: str, with_own_threshold: bool) -> dict[str, Part]:
    """Every tensor that this score may prune, by name."""
    found = {
        name: _part(name, q, by)
        for name, q in named_posteriors(model)
        if _takes_part(q, by, with_own_threshold)
    }
    if not found:
        raise PocketBayesError(f"nothing to prune: {_why_nothing(model, by, with_own_threshold)}")
    return found


def _takes_part(q: Posterior, by: str, with_own_threshold: bool) -> bool:
    if by == "inclusion":
        return isinstance(q, SpikeSlab)
    if with_own_threshold:
        return by == "snr" and isinstance(q, LogUniform)
    return len(q.shape) > 1


def _why_nothing(model: nn.Module, by: str, with_own_threshold: bool) -> str:
    if by == "inclusion":
        return (
            "no weight has an inclusion variable; train with method=SpikeSlab() first, or say "
            'by="snr" or by="magnitude"'
        )
    if with_own_threshold and any(isinstance(q, SpikeSlab) for _, q in named_posteriors(model)):
        return 'inclusion variables say which weights may go: say by="inclusion", or nothing'
    if with_own_threshold:
        return (
            "no inclusion variables or log-uniform priors say which weights may go; say how many: "
            "density=0.05, or budget=0.005 with loader=validation_loader"
        )
    return "all posteriors are those of vectors, such as biases, which stay"


def _part(name: str, q: Posterior, by: str) -> Part:
    """One tensor with the scores of its units; an error if its family has no such score."""
    if isinstance(q, SpikeSlab) and by == "inclusion":
        score, rank = q.log_odds.flatten(), _rank_of_inclusion(q)
        _require_numbers(name, score, rank)
        return Part(q, score, q.shape.numel() // len(score), rank)
    if isinstance(q, Gaussian | Sparse):
        values = CRITERIA[by](q.mean.double(), q.log_std.double().exp())
    elif isinstance(q, Point | SparsePoint) and by == "magnitude":
        values = q.mean.abs()
    else:
        raise PocketBayesError(f"{name} cannot be pruned by {by}: {_remedy(q)}")
    score = values.flatten(1).mean(1) if isinstance(q, Packed) and values.dim() > 1 else values
    score = score.flatten()
    _require_numbers(name, score)
    return Part(q, score, q.num_active // len(score), score)


def _require_numbers(name: str, *scores: Tensor) -> None:
    if any(bool(score.isnan().any()) for score in scores):
        raise PocketBayesError(f"{name} has a weight that is not a number: train the model anew")


def _rank_of_inclusion(q: SpikeSlab) -> Tensor:
    """Log-odds; among inclusion variables that are all but certain, which are many, SNR decides."""
    certain = (MOST_LOG_ODDS if q.is_independent else MOST_DRAWN_LOG_ODDS) - 0.5
    snr = q.of_groups(CRITERIA["snr"](q.mean.double(), q.log_std.double().exp()))
    close = q.log_odds.double().clamp(-certain, certain) + 1e-6 * (1 - 1 / (1 + snr))
    return close.flatten()


def _remedy(q: Posterior) -> str:
    if isinstance(q, SpikeSlab):
        return 'its weights have inclusion variables, so say by="inclusion"'
    if isinstance(q, Point | SparsePoint):
        return 'its weights have no std, so say by="magnitude"'
    return "its weights share a codebook; prune first, and share what is left"
