"""What becomes of a run's one-pass head when it is compressed: other weights need another one."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

from torch import nn

from pocketbayes.codec import described, save
from pocketbayes.commands.candidates import Candidate, CandidateMaker
from pocketbayes.commands.train import reopened
from pocketbayes.distillation import distill_
from pocketbayes.layers import head_of, set_head

_MOST = 0.5  # of a file may be its head
_SPARE = 64, 1 / 32  # bytes, and share of a head, by which another one may be longer in a file


def room_for_head_(model: nn.Module, folder: Path, target: int) -> int:
    """Bytes to leave for its head; 0: it has none, or one too large for the target, which goes.

    A model that fits as it is keeps it.
    """
    if head_of(model) is None:
        return 0
    plain, path = copy.deepcopy(model), folder / "head.pocket"
    set_head(plain, None)
    whole, rest = save(model, path).bytes, save(plain, path).bytes
    path.unlink()
    taken = whole - rest
    if whole <= target or taken <= _MOST * target:
        return taken + _SPARE[0] + round(_SPARE[1] * taken)
    set_head(model, None)
    return 0


def has_lost_head(maker: CandidateMaker, chosen: Candidate) -> bool:
    """Whether room was left for a head that is not in the file."""
    return maker.head_bytes > 0 and described(chosen.path).one_pass is None


def without_head_(maker: CandidateMaker) -> CandidateMaker:
    """The same model and data with no head and no room for one."""
    set_head(maker.model, None)
    return replace(maker, head_bytes=0)


def retaught(maker: CandidateMaker, chosen: Candidate) -> Candidate:
    """The candidate with a head of its own weights, if the model had one and the file then fits."""
    known = described(maker.source).one_pass
    if known is None or described(chosen.path).one_pass is not None:
        return chosen
    bare = replace(chosen, size=chosen.path.stat().st_size)
    if maker.head_bytes == 0:
        return bare
    model, seed = reopened(chosen.path, maker.plan, maker.train), maker.plan.options.seed
    distill_(
        model,
        maker.loader(),
        num_samples=known["draws"],
        estimator=known["estimator"],
        likelihood=known.get("likelihood"),
        seed=seed,
    )
    path = maker.stored(model, chosen.recipe)
    size = path.stat().st_size
    return replace(bare, path=path, size=size) if size <= maker.limit else bare


def fate_of_head(maker: CandidateMaker, chosen: Candidate, out: Path) -> dict[str, Any]:
    """What the report says of the head; nothing if there was none."""
    if not maker.had_head:
        return {}
    if described(chosen.path).one_pass is None:
        why = "the file did not fit with it" if maker.head_bytes else "it is half of the target"
        return {"one_pass": f"dropped: {why}; for another one: pocketbayes distill {out}"}
    return {"one_pass": "kept" if chosen.recipe.is_untouched else "taught again"}
