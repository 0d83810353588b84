"""Labels mixed with what a teacher says of the very inputs: knowledge distillation."""

from collections.abc import Iterable, Iterator
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError, require_number
from pocketbayes.layers import (
    Inputs,
    estimator_of,
    first_parameter,
    has_posteriors,
    moved,
    require_module,
)
from pocketbayes.likelihoods import MASKED, likelihood_of, require_labels
from pocketbayes.prediction import compiling, drawing, draws_of, float_dtype, unpack
from pocketbayes.training.batches import LoaderAround


def with_teacher(
    loader: Iterable[Any],
    teacher: nn.Module,
    share: float = 0.9,
    compile: bool | str = False,  # noqa: A002
) -> "TaughtLoader":
    """A loader whose labels are mixed with what a trained model says of the same inputs.

    Targets are (1 - share) one_hot(label) + share softmax(teacher(x)), and 0 where there is no
    label. The teacher, which is not changed, is drawn once for each batch, after augmentation: on
    average over draws, the loss is that of its averaged probabilities.

    Args:
        loader: training data with class labels, as `fit` takes it.
        teacher: a trained classifier of the same classes, on the device of the training.
        share: of the teacher in the targets.
        compile: run a teacher that draws weights as machine code by `torch.compile`, as `predict`.

    Example:
        >>> pb.prune_(small, density=0.1)
        >>> pb.fit(small, pb.with_teacher(loader, model), epochs=20)
    """
    require_module(teacher)
    require_number(share, "share", least=0, most=1)
    if not has_posteriors(teacher):
        raise PocketBayesError("the teacher has no posterior: call bayesianize_(net) first")
    if likelihood_of(teacher, None).name != "categorical":
        raise PocketBayesError("a teacher tells probabilities of classes; this one tells others")
    return TaughtLoader(loader, teacher, share, compile)


class TaughtLoader(LoaderAround):
    """What `with_teacher` returns."""

    def __init__(
        self,
        loader: Iterable[Any],
        teacher: nn.Module,
        share: float,
        compile: bool | str = False,  # noqa: A002
    ) -> None:
        self.loader, self.teacher, self.share, self.compile = loader, teacher, share, compile
        if hasattr(loader, "dataset"):
            self.dataset = loader.dataset
        self.sampler = getattr(loader, "sampler", None)  # by these two, `fit` sets the order
        self.generator = getattr(loader, "generator", None)

    def around(self, loader: Iterable[Any]) -> Self:
        """The same lessons about another loader's inputs."""
        return type(self)(loader, self.teacher, self.share, self.compile)

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[tuple[Inputs, Tensor]]:
        device, dtype = first_parameter(self.teacher).device, float_dtype(self.teacher)
        for batch in self.loader:
            inputs, labels = unpack(batch, "the training loader", dtype)
            x = moved(inputs, device)
            yield x, self._mixed(self._said(x, device), labels.to(device))

    def _said(self, x: Inputs, device: torch.device) -> Tensor:
        """Probabilities by one draw of the teacher."""
        by = estimator_of(self.teacher)
        half = torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")
        wanted = self.compile if by != "lrt" else False  # which is no quicker
        with half, compiling(wanted, by), drawing(self.teacher, None, None):
            return draws_of([self.teacher], x)[0].float().softmax(1)

    def _mixed(self, said: Tensor, labels: Tensor) -> Tensor:
        require_labels(said, labels)
        known = F.one_hot(labels.long().clamp(0), said.shape[1]).movedim(-1, 1)
        mixed = torch.lerp(known.to(said.dtype), said, self.share)
        return mixed.where((labels != MASKED)[:, None], 0)
