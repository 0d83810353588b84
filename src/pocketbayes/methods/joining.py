"""All Gaussians of a network laid end to end, to share one codebook."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError
from pocketbayes.methods.base import Gradients
from pocketbayes.methods.processes import agreed
from pocketbayes.posteriors import Gaussian, Sparse

Unshared = Gaussian | Sparse


class Joined(NamedTuple):
    """Means and stds of all weights in a row, and where the weights of each tensor stand in it."""

    posteriors: dict[str, Unshared]
    mean: Tensor
    std: Tensor
    parts: dict[str, slice]

    @classmethod
    def of(cls, own: dict[str, Unshared]) -> "Joined":
        """The same on every process; weights that are not finite are refused."""
        mean, std = (
            agreed(torch.cat([t.detach().float().reshape(-1) for t in tensors]))
            for tensors in ([q.mean for q in own.values()], [q.std for q in own.values()])
        )
        ends = np.cumsum([0, *(q.num_active for q in own.values())])
        slices = (slice(int(a), int(b)) for a, b in pairwise(ends))
        made = cls(own, mean, std, dict(zip(own, slices, strict=True)))
        made._require_finite()
        return made

    def _require_finite(self) -> None:
        for name, part in self.parts.items():
            if not (self.mean[part].isfinite().all() and self.std[part].isfinite().all()):
                raise PocketBayesError(
                    f"{name} has weights that are not finite, which cannot share a codebook: train "
                    "the model again, or go back to an earlier file"
                )

    def in_a_row(self, gradients: Gradients) -> Tensor:
        """These gradients in the order of the weights."""
        return torch.cat([gradients[name].float().reshape(-1) for name in self.posteriors])

    def padding(self, model: nn.Module) -> Tensor:
        """Places of the padding rows of embeddings, which must stay what they are."""
        found = [torch.empty(0, dtype=torch.int64)]
        for name, q in self.posteriors.items():
            row = getattr(model.get_submodule(name.rpartition(".")[0]), "padding_idx", None)
            if row is not None and len(q.shape) == 2:
                padded = torch.zeros(q.shape, dtype=torch.bool)
                padded[row] = True
                there = q.in_units(padded)[q.index.cpu()] if isinstance(q, Sparse) else padded
                found.append(self.parts[name].start + there.flatten().nonzero().flatten())
        return torch.cat(found).to(self.mean.device)
