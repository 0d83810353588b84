"""Stochastic weight sharing: all weights look into one small codebook of Gaussians."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor, nn

from pocketbayes.errors import (
    PocketBayesError,
    require_choice,
    require_count,
    require_number,
    require_truth,
)
from pocketbayes.layers import named_posteriors, replace_posterior
from pocketbayes.methods.base import Method, StartContext, VariationalMethod, unshare_
from pocketbayes.methods.joining import Joined, Unshared
from pocketbayes.methods.mean_field import MeanField
from pocketbayes.methods.processes import agreed, agreed_object
from pocketbayes.posteriors import (
    DRAWS,
    Blends,
    Codebook,
    Gaussian,
    Outliers,
    Shared,
    Sparse,
    Support,
    is_trainable,
)
from pocketbayes.sharing import (
    ENTRY_BITS,
    MERGES,
    CodebookEntries,
    Plan,
    Rules,
    nearest_entries,
    outlier_bits,
    planned_codebook,
    planned_mixture,
    planned_to_fit,
)

OBJECTIVES = ("mixture", "rate_distortion")


@dataclass(frozen=True, kw_only=True)
class Sharing(VariationalMethod):
    """Stochastic weight sharing (Lin et al. 2025): one codebook of Gaussians for a whole network.

    Fits a mixture to the (mean, std) of all weights, gives each weight an entry of the resulting
    codebook, keeps outliers as they are, blends those between two entries, and trains codebook and
    outliers. Meant for a model that has been trained by `MeanField` or `Subspace`, whose zeros
    stay zero; `pretrain_epochs` trains it first, for one that comes from a deterministic network.

    Attributes:
        components: entries of the codebook at most. The paper: 2,000 and 6,000.
        objective: "mixture" (the paper's), or "rate_distortion": each weight takes the entry of
            least KL(entry || q) - rate log share, so that the file gets small; no blends.
        draw: "independent" (each weight its own draw), or "shared" (one draw per entry and pass:
            far fewer random numbers, but fully correlated weights; train with it, too).
        outlier_mean: larger absolute means are outliers. The paper: 0.2. None: no limit.
        outlier_gradient: share of weights, of the largest gradients, that are outliers. The paper:
            0.01. With 0, and no merging or `merge_gradient=1`, the pass over the data is spared.
        least_members: members of smaller clusters are outliers. The paper: 30 and 20.
        blend_beyond: squared Mahalanobis distance from which a weight is blended of two entries.
            The paper: 5.991, outside of 95%. None: no blends.
        blend_nearest: nearest entries that those two are the likeliest of. The paper: 5.
        merge: how close components become one: "moments" (exactly), "paper" (its equations 5 and
            6, which inflate), or "none".
        merge_below: squared Wasserstein distance of a pair that may merge. The paper: 1.5e-7 and
            1e-2.
        merge_gradient: only components whose mean gradient lies in this lowest share may merge.
            The paper gives no value.
        merge_variance: the same of the components' variance. The paper gives no value.
        paper: of "mixture": the order of the paper's Algorithm 1. Blends are found before
            components merge, and a pair merges if its gradients, and its variances, differ little;
            `merge_gradient` and `merge_variance` are then shares of the differences between nearest
            components.
        rate: of "rate_distortion": nats of KL that one nat of index is worth.
        target_bytes: of "rate_distortion": finds the smallest rate, to a few percent, at which the
            weights of an ideal code (each tensor's labels at their entropy, outliers, the codebook)
            fit; overrides `rate`. It is filled, not only kept to. The file has besides it the
            places of sparse weights, all that is deterministic, and a description;
            after `reassign_every` the code may be a little larger.
        reassign_every: epochs after which each weight goes to the entry that is now nearest to
            what it was before sharing; 0: never.
        refresh_norms: estimate the statistics of batch norms, and the noise of a regression, anew
            once the codebook is in place, on at most 200 batches: sharing moves what reaches them.
            A noise that is frozen stays as it is.
        pretrain_epochs: epochs of mean-field VI before sharing, on top of `epochs`.
        pretrain_lr: learning rate of means there.
        pretrain_std_lr: learning rate of log-stds there.
    """

    lr: float = 1e-4
    std_lr: float = 1e-3
    noise_lr: float | None = 3e-2
    warmup: float = 0.0
    components: int = 2000
    objective: str = "mixture"
    draw: str = "independent"
    outlier_mean: float | None = 0.2
    outlier_gradient: float = 0.01
    least_members: int = 20
    blend_beyond: float | None = 5.991
    blend_nearest: int = 5
    merge: str = "moments"
    merge_below: float = 1.5e-7
    merge_gradient: float = 0.9
    merge_variance: float = 0.9
    paper: bool = False
    rate: float = 0.02
    target_bytes: int | None = None
    reassign_every: int = 0
    refresh_norms: bool = True
    pretrain_epochs: int = 0
    pretrain_lr: float = 1e-3
    pretrain_std_lr: float = 1e-2

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice(self.objective, "Sharing.objective", OBJECTIVES)
        require_choice(self.draw, "Sharing.draw", DRAWS)
        require_choice(self.merge, "Sharing.merge", (*MERGES, "none"))
        for name in ("paper", "refresh_norms"):
            require_truth(getattr(self, name), f"Sharing.{name}")
        require_count(self.components, "Sharing.components")
        require_count(self.least_members, "Sharing.least_members")
        require_count(self.blend_nearest, "Sharing.blend_nearest", least=2)
        require_count(self.reassign_every, "Sharing.reassign_every", least=0)
        require_count(self.pretrain_epochs, "Sharing.pretrain_epochs", least=0)
        for name in ("outlier_gradient", "merge_gradient", "merge_variance"):
            require_number(getattr(self, name), f"Sharing.{name}", least=0, most=1)
        for name in ("rate", "merge_below"):
            require_number(getattr(self, name), f"Sharing.{name}", above=0)
        for name in ("outlier_mean", "blend_beyond"):
            if getattr(self, name) is not None:
                require_number(getattr(self, name), f"Sharing.{name}", above=0)
        for name in ("pretrain_lr", "pretrain_std_lr"):
            require_number(getattr(self, name), f"Sharing.{name}", least=0)
        if self.target_bytes is not None:
            require_count(self.target_bytes, "Sharing.target_bytes")
            if self.objective != "rate_distortion":
                raise PocketBayesError(
                    'Sharing.target_bytes needs objective="rate_distortion": a mixture ignores size'
                )

    def stages(self) -> tuple[Method, int, Method] | None:
        """Mean-field VI first, if it was asked for."""
        if self.pretrain_epochs == 0:
            return None
        taken = {f.name: getattr(self, f.name) for f in fields(VariationalMethod)}
        taken |= {"lr": self.pretrain_lr, "std_lr": self.pretrain_std_lr, "noise_lr": None}
        first = MeanField(**(taken | {"warmup": 0.5}))
        return first, self.pretrain_epochs, replace(self, pretrain_epochs=0)

    def start(self, model: nn.Module) -> None:
        """Gives every weight a Gaussian of its own."""
        unshare_(model)
        super().start(model)

    def begin(self, model: nn.Module, context: StartContext) -> None:
        """Puts one codebook in place of all Gaussians that learn."""
        own = {
            name: q
            for name, q in named_posteriors(model)
            if isinstance(q, Gaussian | Sparse) and q.mean.requires_grad
        }
        if not own:
            raise PocketBayesError("nothing to share: no posterior of the model learns")
        joined = Joined.of(own)
        needed = self.objective == "mixture" and self._asks_for_gradients
        gradient = joined.in_a_row(context.mean_gradients()) if needed else None
        mean, std, padding = joined.mean, joined.std, joined.padding(model)
        room = self._leaving_room(len(padding), len(mean))
        plan = room.planned(mean, std, gradient, list(joined.parts.values()))
        plan = agreed_object(plan.on(torch.device("cpu"))).on(mean.device)
        plan = plan.keeping_as_outliers(padding)
        codebook = _codebook(plan, next(iter(own.values())).mean, self.draw)
        for name, q in own.items():
            replace_posterior(model, name, _shared(q, codebook, plan, joined.parts[name]))
        if self.reassign_every:
            rate = torch.tensor(plan.rate, dtype=torch.float64)
            context.memory.update(mean=mean, std=std, rate=rate)
        if self.refresh_norms:
            context.refresh()

    def _leaving_room(self, outliers: int, weights: int) -> "Sharing":
        """The same with what is left of `target_bytes` beside weights that must be outliers."""
        if self.target_bytes is None or outliers == 0:
            return self
        taken = math.ceil(outliers * outlier_bits(weights) / 8)
        if self.target_bytes - taken < ENTRY_BITS // 8:
            raise PocketBayesError(
                f"target_bytes={self.target_bytes} is too little: the padding rows of embeddings, "
                f"which stay as they are, take {taken}"
            )
        return replace(self, target_bytes=self.target_bytes - taken)

    @property
    def _asks_for_gradients(self) -> bool:
        return self.outlier_gradient > 0 or (self.merge != "none" and self.merge_gradient < 1)

    def planned(
        self,
        mean: Tensor,
        std: Tensor,
        gradient: Tensor | None = None,
        parts: Sequence[slice] = (),
    ) -> Plan:
        """The codebook for these weights and what each is in it; `parts` are the tensors."""
        if self.objective == "mixture":
            return planned_mixture(mean, std, gradient, self.rules())
        if self.target_bytes is not None:
            return planned_to_fit(mean, std, self.components, self.target_bytes, parts)
        return planned_codebook(mean, std, self.components, self.rate, parts)

    def rules(self) -> Rules:
        """The thresholds of the mixture alone."""
        return Rules(**{field.name: getattr(self, field.name) for field in fields(Rules)})

    @torch.no_grad()
    def after_epoch(self, model: nn.Module, epoch: int, memory: dict[str, Tensor]) -> None:
        """Gives weights the entry that is now nearest, every `reassign_every` epochs."""
        if self.reassign_every == 0 or epoch % self.reassign_every:
            return
        shared = [
            q for _, q in named_posteriors(model) if isinstance(q, Shared) and is_trainable(q)
        ]
        rate = float(memory["rate"])
        groups = [[q] for q in shared] if rate > 0 else [shared]  # shares count where a rate does
        sizes = [sum(q.num_active for q in group) for group in groups]
        means, stds = (torch.split(memory[name], sizes) for name in ("mean", "std"))
        found = [
            nearest_entries(mean, std, _entries_of(group), rate)
            for group, mean, std in zip(groups, means, stds, strict=True)
        ]
        labels = torch.split(agreed(torch.cat(found)), [q.num_active for q in shared])
        for q, label in zip(shared, labels, strict=True):
            q.relabel_(label)


def _entries_of(shared: Sequence[Shared]) -> CodebookEntries:
    """The codebook as it is now, with the shares that its entries have in these tensors."""
    codebook = shared[0].codebook
    count = torch.stack([q.count for q in shared]).double().sum(0).clamp(min=1e-3)
    arrays = [codebook.mean.double(), (2 * codebook.log_std.double()).exp(), count / count.sum()]
    return CodebookEntries(*(array.detach().cpu().numpy() for array in arrays))


def _codebook(plan: Plan, like: Tensor, draw: str) -> Codebook:
    mean, std = (torch.from_numpy(array).to(like.device, like.dtype) for array in plan[:2])
    return Codebook(mean, std.log(), draw)


def _shared(own: Unshared, codebook: Codebook, plan: Plan, part: slice) -> Shared:
    """One tensor's share of the plan."""
    outlier, blend = (_inside(place, part) for place in (plan.outlier, plan.blend))
    place, like = plan.outlier[outlier] - part.start, codebook.mean
    outliers = Outliers(place, *(t.detach().reshape(-1)[place] for t in (own.mean, own.log_std)))
    blends = Blends(
        plan.blend[blend] - part.start, plan.blend_label[blend], plan.blend_share[blend].to(like)
    )
    label = plan.label[part].clone()
    support = Support(own.index.clone(), own.structure) if isinstance(own, Sparse) else None
    return Shared(codebook, label, own.shape, own.prior_std.clone(), outliers, blends, support)


def _inside(places: Tensor, part: slice) -> Tensor:
    """Which of these places lie in the part."""
    inside: Tensor = (places >= part.start) & (places < part.stop)
    return inside.nonzero().flatten()
