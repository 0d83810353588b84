"""The codebook of Gaussians that the weights of a whole network share."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Self

import torch
from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError
from pocketbayes.posteriors.base import require_real_arrays
from pocketbayes.posteriors.drawing import current_drawing, inside_vmap
from pocketbayes.posteriors.gaussian import noisy, reparameterised

DRAWS = ("independent", "shared")
_COPIES = 32  # of the codebook on a GPU, where gradients of one entry would queue up


class Codebook(nn.Module):
    """Entries N(mean_k, exp(log_std_k)^2), one object for all posteriors that look into it.

    With `draw="shared"` an entry is drawn once in a pass of the network, for all its weights. A
    pass ends when a posterior asks for its second draw, when the draw is differentiated, when
    parameters change, and at `begin_pass`, which `fit` and `predict` call. Activation
    checkpointing, which runs parts of a pass again, does not go with it.
    """

    array_names = ("mean", "log_std", "draw")
    code: Tensor

    def __init__(self, mean: Tensor, log_std: Tensor, draw: str = "independent") -> None:
        super().__init__()
        if draw == "shared":
            _keep_passes_from_compilers()
        self.mean = nn.Parameter(mean)
        self.log_std = nn.Parameter(log_std)
        code = torch.tensor(DRAWS.index(draw), device=mean.device)
        self.register_buffer("code", code)  # part of the state, so that no other draw is taken
        self.draw = draw
        self._asked: set[int] = set()
        self._drawn: tuple[object, Tensor] | None = None

    def __len__(self) -> int:
        """The number of entries."""
        return len(self.mean)

    def drawn_together(self, asker: object, generator: torch.Generator | None) -> Tensor:
        """The draw that each entry has in this pass."""
        drawn: Tensor = self._pass(id(asker), generator)
        return drawn

    def drawn_apart(self, label: Tensor, generator: torch.Generator | None) -> Tensor:
        """A draw for each label."""
        mean, log_std = (values.index_select(0, label) for values in (self.mean, self.log_std))
        return noisy(mean, log_std.exp(), generator)

    def begin_pass(self, _: object = None) -> None:
        """Forgets the last draw."""
        drawing = current_drawing()
        if drawing is not None:
            drawing.passes.pop(self, None)
            return
        self._asked, self._drawn = set(), None

    def _pass(self, asker: int, generator: torch.Generator | None) -> Tensor:
        """The draw of all entries in this pass; a new one if the asker has had it already."""
        state = (
            *((id(p), version_of(p), p.dtype, p.device) for p in (self.mean, self.log_std)),
            torch.is_grad_enabled(),
            torch._C._functorch.maybe_current_level(),
        )
        asked, known = self._known()
        if known is None or known[0] != state or asker in asked:
            drawn = reparameterised(self.mean, self.log_std, generator)
            if drawn.requires_grad:
                drawn.register_hook(self.begin_pass)  # type: ignore[no-untyped-call]
            asked, known = set(), (state, drawn)
            self._know(asked, known)
        asked.add(asker)
        return known[1]

    def _known(self) -> tuple[set[int], tuple[object, Tensor] | None]:
        """Who has asked in this pass, and the draw: of the prediction that runs, or its own."""
        drawing = current_drawing()
        if drawing is None:
            return self._asked, self._drawn
        found: tuple[set[int], tuple[object, Tensor]] | None = drawing.passes.get(self)
        return (set(), None) if found is None else found

    def _know(self, asked: set[int], drawn: tuple[object, Tensor]) -> None:
        drawing = current_drawing()
        if drawing is None:
            self._asked, self._drawn = asked, drawn
        else:
            drawing.passes[self] = asked, drawn

    def _apply(self, *args: Any, **kwargs: Any) -> Self:
        """Moves or converts the codebook; draws of what it was are forgotten."""
        self.begin_pass()
        return super()._apply(*args, **kwargs)  # type: ignore[no-any-return, no-untyped-call]

    def __getstate__(self) -> dict[str, Any]:
        """A copy begins with a pass of its own."""
        return self.__dict__ | {"_drawn": None, "_asked": set()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The same in another process, where no codebook may have been made yet."""
        if state["draw"] == "shared":
            _keep_passes_from_compilers()
        super().__setstate__(state)  # type: ignore[no-untyped-call]

    def arrays(self) -> dict[str, Tensor]:
        """What determines the codebook."""
        return {"mean": self.mean.detach(), "log_std": self.log_std.detach(), "draw": self.code}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Tensor]) -> Self:
        """The codebook with copies of these arrays, if they fit."""
        mean, log_std, code = (arrays[name] for name in cls.array_names)
        require_real_arrays(mean, log_std)
        if mean.dim() != 1 or len(mean) == 0:
            raise PocketBayesError("a codebook is a list of at least one entry")
        if code.dtype != torch.int64 or code.dim() or not 0 <= int(code) < len(DRAWS):
            raise PocketBayesError(f"draw must be a number from 0 to {len(DRAWS) - 1}")
        return cls(mean.clone(), log_std.clone(), DRAWS[int(code)])

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *others: Any
    ) -> None:
        """Takes a state of another number of entries, too, but of no other kind of draw."""
        self.begin_pass()
        mean, code = (state_dict.get(prefix + name) for name in ("mean", "code"))
        if isinstance(code, Tensor) and int(code) != int(self.code):
            others[-1].append(f"{prefix[:-1]} is a codebook with another draw than {self.draw!r}")
            return
        if isinstance(mean, Tensor) and mean.shape != self.mean.shape and mean.dim() == 1:
            for name, old in list(self.named_parameters()):
                fresh = old.detach().new_zeros(len(mean))
                setattr(self, name, nn.Parameter(fresh, old.requires_grad))
        super()._load_from_state_dict(state_dict, prefix, *others)


@cache
def _keep_passes_from_compilers() -> None:
    """Which posterior has asked is not for a graph to remember.

    As a decorator in the class this would import torch's compiler along with the library.
    """
    for name in ("begin_pass", "_pass"):
        kept = torch.compiler.disable(getattr(Codebook, name))  # type: ignore[no-untyped-call]
        setattr(Codebook, name, kept)


def version_of(parameter: Tensor) -> int:
    """Counts changes in place; one made in inference mode has no counter."""
    return 0 if parameter.is_inference() else parameter._version


def looked_up(values: Tensor, label: Tensor) -> Tensor:
    """values[label]; its gradient is the sum over each entry's weights.

    On a GPU the sum goes through copies of the codebook: millions of weights that add to one
    address would wait for each other.
    """
    if not (values.is_cuda and values.requires_grad and torch.is_grad_enabled()):
        return values.index_select(0, label)
    copy = torch.arange(len(label), dtype=label.dtype, device=label.device) % _COPIES
    return values.repeat(_COPIES).index_select(0, label + copy * len(values))


def overwritten(values: Tensor, place: Tensor, new: Tensor) -> Tensor:
    """New values at some places of a tensor that nobody else holds."""
    if inside_vmap():  # has no rule for the overwriting form
        return values.index_copy(0, place, new)
    return values.index_copy_(0, place, new)


def codebooks_with_passes(model: nn.Module) -> tuple[Codebook, ...]:
    """The codebooks of a model that are drawn once in a pass."""
    return tuple(m for m in model.modules() if isinstance(m, Codebook) and m.draw == "shared")


@contextmanager
def passes_of(model: nn.Module) -> Iterator[None]:
    """Afterwards no codebook remembers a draw of the passes inside."""
    try:
        yield
    finally:
        for codebook in codebooks_with_passes(model):
            codebook.begin_pass()
