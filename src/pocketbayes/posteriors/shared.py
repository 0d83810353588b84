"""Weights that share a codebook of Gaussians: an index for most, and a few outliers."""

from collections.abc import Iterator, Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn

from pocketbayes.errors import PocketBayesError
from pocketbayes.posteriors.base import Posterior, prior_std_from
from pocketbayes.posteriors.codebook import Codebook, looked_up, overwritten
from pocketbayes.posteriors.gaussian import (
    gaussian_kl,
    gaussian_kls,
    noisy,
    reparameterised,
    square_of_exp,
)
from pocketbayes.posteriors.parts import (
    Blends,
    Outliers,
    Support,
    are_below,
    checked_blends,
    checked_outliers,
    checked_support,
    label_type,
    no_blends,
    no_outliers,
    require_labels,
    require_separate,
)
from pocketbayes.posteriors.randomness import uniform
from pocketbayes.posteriors.reuse import recalled, remembered
from pocketbayes.posteriors.structures import LAYOUTS, placed_units, unit_layout


class Shared(Posterior):
    """q(w_i) = N(m_k, v_k) with k = label_i, an entry of a codebook that the whole network shares.

    Outliers have a mean and std of their own. A blend is the mixture a N_k + (1 - a) N_l, which
    `moments` describes by its exact mean and variance. With a support every other weight is
    exactly 0. Labels of outliers and blends are not read.
    """

    array_names = (
        "label", "outlier", "outlier_mean", "outlier_log_std", "blend", "blend_label",
        "blend_share", "prior_std", "shape", "index", "structure",
    )  # fmt: skip
    label: Tensor
    outlier: Tensor
    blend: Tensor
    blend_label: Tensor
    blend_share: Tensor
    index: Tensor | None
    _count: Tensor | None

    def __init__(
        self,
        codebook: Codebook,
        label: Tensor,
        shape: torch.Size | tuple[int, ...],
        prior_std: float | Tensor,
        outliers: Outliers | None = None,
        blends: Blends | None = None,
        support: Support | None = None,
    ) -> None:
        super().__init__(prior_std, like=codebook.mean)
        outliers, blends = (
            outliers or no_outliers(codebook.mean),
            blends or no_blends(codebook.mean),
        )
        self.table = codebook  # its name in a state dict
        self._shape = torch.Size(shape)
        self.structure = None if support is None else support.structure
        self.register_buffer("label", label.to(label_type(len(codebook))))
        self.register_buffer("index", None if support is None else support.index)
        self.register_buffer("outlier", outliers.place)
        self.register_buffer("blend", blends.place)
        self.register_buffer("blend_label", blends.label.to(self.label.dtype))
        self.register_buffer("blend_share", blends.share)
        self.outlier_mean = nn.Parameter(outliers.mean, codebook.mean.requires_grad)
        self.outlier_log_std = nn.Parameter(outliers.log_std, codebook.mean.requires_grad)
        self.register_buffer("_count", None, persistent=False)

    @property
    def codebook(self) -> Codebook:
        """The Gaussians that the weights share."""
        return self.table

    @property
    def count(self) -> Tensor:
        """How many weights look at each entry; of a blend, its shares. Made when first wanted."""
        if self._count is None:
            self._count = self._counted(len(self.codebook))
        return self._count

    def _apply(self, *args: Any, **kwargs: Any) -> Self:
        """Moves everything, and converts all but the counts: a smaller type might not hold them."""
        count, self._count = self._count, None
        super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]
        self._count = None if count is None else count.to(self.label.device)
        return self

    def plain_labels(self) -> Tensor:
        """Labels of the weights that are no outlier and no blend."""
        plain = torch.ones(len(self.label), dtype=torch.bool, device=self.label.device)
        plain[self.outlier] = False
        plain[self.blend] = False
        return self.label[plain]

    def _counted(self, entries: int) -> Tensor:
        count = torch.bincount(self.plain_labels(), minlength=entries).double()
        share = self.blend_share.double()
        for column, part in enumerate((share, 1 - share)):
            count.index_add_(0, self.blend_label[:, column].int(), part)
        return count.to(torch.promote_types(self.prior_std.dtype, torch.float32))

    @property
    def shape(self) -> torch.Size:
        """The shape of the weight tensor."""
        return self._shape

    @property
    def num_active(self) -> int:
        """Weights that are there."""
        return len(self.label)

    @property
    def is_independent(self) -> bool:
        """Not if the weights of an entry are drawn together."""
        return self.codebook.draw == "independent"

    def expectation(self) -> Tensor:
        """E[w]: the entry's mean, an outlier's own, a blend's a m_k + (1 - a) m_l."""
        return self.placed(self._mean())

    def _mean(self) -> Tensor:
        values = looked_up(self.codebook.mean, self.label.int())
        if len(self.blend):
            values = values.index_copy(0, self.blend, self._blended(self.codebook.mean))
        return values.index_copy(0, self.outlier, self.outlier_mean)

    def _blended(self, values: Tensor) -> Tensor:
        """Values of entries, averaged over each blend's two."""
        first, second = self.blend_label.int().unbind(1)
        share = self.blend_share
        return share * values.index_select(0, first) + (1 - share) * values.index_select(0, second)

    def moments(self) -> tuple[Tensor, Tensor]:
        """E[w] and Var[w]; of a blend sum a (v + m^2) - (sum a m)^2."""
        return remembered(("moments", self.label), self._moments)

    def _moments(self) -> tuple[Tensor, Tensor]:
        own = square_of_exp(self.codebook.log_std)
        variance = looked_up(own, self.label.int())
        if len(self.blend):
            variance = variance.index_copy(0, self.blend, self._blended(own) + self._apart())
        variance = variance.index_copy(0, self.outlier, square_of_exp(self.outlier_log_std))
        return self.expectation(), self.placed(variance)

    def _apart(self) -> Tensor:
        """What the distance of its two means adds to a blend's variance: a (1 - a) (m - n)^2."""
        first, second = (self.codebook.mean.index_select(0, k) for k in self.blend_label.int().t())
        return self.blend_share * (1 - self.blend_share) * (first - second).square()

    def sample(self, generator: torch.Generator | None = None) -> Tensor:
        """One draw; a blend first chooses which of its two entries it is this time."""
        joint = recalled(("joint draw", self.codebook)) if generator is None else None
        drawn: Tensor | None = None if joint is None else joint.part_of(self)
        if drawn is not None:
            return drawn
        draw = self._drawn_apart if self.is_independent else self._drawn_together
        return self.placed(draw(generator))

    def _drawn_apart(self, generator: torch.Generator | None) -> Tensor:
        mean = self._of_weights(self.codebook.mean, self.outlier_mean)
        std = self._of_weights(self.codebook.log_std.exp(), self.outlier_log_std.exp())
        values = noisy(mean, std, generator)
        if len(self.blend) == 0:
            return values
        blended = self.codebook.drawn_apart(self._chosen_labels(generator), generator)
        return overwritten(values, self.blend, blended)

    def _drawn_together(self, generator: torch.Generator | None) -> Tensor:
        entries = self.codebook.drawn_together(self, generator)
        own = reparameterised(self.outlier_mean, self.outlier_log_std, generator)
        values = self._of_weights(entries, own)
        if len(self.blend) == 0:
            return values
        blended = entries.index_select(0, self._chosen_labels(generator))
        return overwritten(values, self.blend, blended)

    def _of_weights(self, entries: Tensor, own: Tensor) -> Tensor:
        """For every weight the value of its entry or, of an outlier, its own."""
        return overwritten(looked_up(entries, self.label.int()), self.outlier, own)

    def _chosen_labels(self, generator: torch.Generator | None) -> Tensor:
        """The entry that each blend is this time."""
        chance = uniform(len(self.blend), self.label.device, generator)
        first, second = self.blend_label.int().unbind(1)
        return torch.where(chance < self.blend_share, first, second)

    def kl(self, prior_std: float | Tensor | None = None) -> Tensor:
        """KL(q || N(0, p^2)): sum_k n_k KL(N_k || N(0, p^2)), plus that of the outliers.

        A blend counts with its shares, an upper bound. Where draws are shared, an entry is one
        random number with one such prior: the sum over a network counts its codebook once.
        """
        return self.codebook_kl(prior_std) + self.outlier_kl(prior_std)

    def codebook_kl(self, prior_std: float | Tensor | None = None) -> Tensor:
        """The part of the codebook: each entry as often as it is drawn."""
        each = gaussian_kls(self.codebook.mean, self.codebook.log_std, self.prior(prior_std))
        return (self.count * each).sum() if self.is_independent else each.sum()

    def outlier_kl(self, prior_std: float | Tensor | None = None) -> Tensor:
        """The part of the outliers."""
        return gaussian_kl(self.outlier_mean, self.outlier_log_std, self.prior(prior_std))

    def std_parameters(self) -> Iterator[nn.Parameter]:
        """The log-stds of the codebook and of the outliers."""
        yield self.codebook.log_std
        yield self.outlier_log_std

    def placed(self, values: Tensor) -> Tensor:
        """Values of the weights that are there as a dense tensor, which is 0 elsewhere."""
        if self.index is None or self.structure is None:
            return values.view(self.shape)
        shape = tuple(self.shape)
        units = values.view(len(self.index), *unit_layout(shape, self.structure)[1])
        return placed_units(units, self.index, shape, self.structure)

    def relabel_(self, label: Tensor) -> None:
        """Gives every weight another entry; outliers and blends stay what they are."""
        self.label.copy_(label)
        self.count.copy_(self._counted(len(self.codebook)))  # in place: compiled code knows it

    def arrays(self) -> dict[str, Tensor]:
        """Labels, outliers, blends, support and prior; the codebook is stored by itself."""
        dense = self.index is None or self.structure is None
        tensors = {
            "label": self.label,
            "outlier": self.outlier.int(),
            "outlier_mean": self.outlier_mean,
            "outlier_log_std": self.outlier_log_std,
            "blend": self.blend.int(),
            "blend_label": self.blend_label,
            "blend_share": self.blend_share,
            "prior_std": self.prior_std,
            "shape": torch.tensor(self.shape),
            "index": self.outlier.new_empty(0, dtype=torch.int32)
            if self.index is None
            else self.index.int(),
            "structure": torch.tensor(-1 if dense else LAYOUTS.index(str(self.structure))),
        }
        return {name: tensors[name].detach() for name in self.array_names}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Tensor], codebook: Codebook | None = None) -> Self:
        """The posterior with copies of these arrays, if they fit each other and the codebook."""
        if codebook is None:
            raise PocketBayesError("shared weights need the codebook that they look into")
        shape, support, number = checked_support(arrays)
        outliers, blends = (
            checked_outliers(arrays, codebook.mean),
            checked_blends(arrays, codebook.mean),
        )
        require_labels(arrays["label"], len(codebook), (number,), "label")
        require_separate(outliers.place, blends.place, number)
        prior = prior_std_from(arrays)
        return cls(codebook, arrays["label"].clone(), shape, prior, outliers, blends, support)

    def _load_from_state_dict(
        self, state_dict: Mapping[str, Any], prefix: str, *others: Any
    ) -> None:
        """Takes a state with other numbers of entries, outliers and blends, too."""
        code, mean, label, pair = (
            state_dict.get(prefix + name)
            for name in ("table.code", "table.mean", "label", "blend_label")
        )
        if isinstance(code, Tensor) and int(code) != int(self.codebook.code):
            return  # the codebook says so, and nothing here is changed
        if not (are_below(label, mean) and are_below(pair, mean)):
            others[-1].append(f"{prefix}label names entries that the codebook does not have")
            return
        if isinstance(label, Tensor) and label.shape != self.label.shape:
            others[-1].append(f"{prefix}label is of {len(label)} weights, not {len(self.label)}")
            return
        self._count = None
        for name in ("label", "outlier", "blend", "blend_label", "blend_share"):
            stored = state_dict.get(prefix + name)
            if isinstance(stored, Tensor):
                setattr(self, name, stored.to(self.label.device, copy=True))
        for name in ("outlier_mean", "outlier_log_std"):
            stored, old = state_dict.get(prefix + name), getattr(self, name)
            if isinstance(stored, Tensor) and stored.dim() == 1:
                fresh = old.detach().new_zeros(len(stored))
                setattr(self, name, nn.Parameter(fresh, old.requires_grad))
        super()._load_from_state_dict(state_dict, prefix, *others)
