"""Sparse subspace variational inference: a Bayesian network that is sparse from the first step."""

from dataclasses import dataclass

from torch import Tensor, nn

from pocketbayes.errors import require_choice, require_number
from pocketbayes.layers import named_posteriors
from pocketbayes.methods.base import VariationalMethod, points_to_gaussians_
from pocketbayes.methods.exchanging import ExchangingMethod
from pocketbayes.posteriors import Gaussian, Packed, Posterior, Sparse
from pocketbayes.sparsity import CRITERIA


@dataclass(frozen=True, kw_only=True)
class Subspace(ExchangingMethod, VariationalMethod):
    """Sparse subspace VI (Li et al. 2024): mean-field VI in a subspace that is learned along.

    Minimises E_q[-log p(D | w)] + beta KL(q || prior) over means and stds of exactly `density` of
    the weights; the others are exactly 0. Every `update_every` steps the weights of lowest
    criterion make room for as many with the largest gradient.

    Attributes:
        criterion: what weights are removed by: "snr_magnitude", "snr", "magnitude",
            "expected_magnitude", "expected_exp" or "snr_exp".
        new_std: std of a weight just added: "mean" (of its tensor) or "eps".
        eps: that small std.
    """

    criterion: str = "snr_magnitude"
    new_std: str = "mean"
    eps: float = 1e-4

    def __post_init__(self) -> None:
        super().__post_init__()
        require_choice(self.criterion, "Subspace.criterion", tuple(CRITERIA))
        require_choice(self.new_std, "Subspace.new_std", ("mean", "eps"))
        require_number(self.eps, "Subspace.eps", least=1e-30, most=1e6)

    def prepare_(self, model: nn.Module) -> None:
        """Gives every deterministic weight a Gaussian to train."""
        points_to_gaussians_(model, self.std_init)

    def ranks_across(self, model: nn.Module) -> bool:
        """Yes once stds have been trained: before, the criterion only sees initial scales."""
        stds = [q.std.detach() for _, q in named_posteriors(model) if isinstance(q, Gaussian)]
        return len(stds) == 0 or any(bool((std != stds[0].flatten()[0]).any()) for std in stds)

    def score(self, posterior: Posterior) -> Tensor:
        """The criterion; `snr` for "snr_magnitude", which ranks weights in the same order."""
        assert isinstance(posterior, Gaussian | Sparse)
        name = "snr" if self.criterion == "snr_magnitude" else self.criterion
        return CRITERIA[name](posterior.mean, posterior.std)

    def newcomers(self, posterior: Packed) -> dict[str, float]:
        """Mean 0, and the average std of the tensor's active weights, or `eps`."""
        assert isinstance(posterior, Sparse)
        std = (
            posterior.std.mean() if self.new_std == "mean" else posterior.mean.new_tensor(self.eps)
        )
        return {"mean": 0.0, "log_std": float(std.log())}
