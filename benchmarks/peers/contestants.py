"""How each library turns a network into a Bayesian one, trains it and predicts: its own names.

All get the same network with the same weights at first; those that train a posterior by
variational inference also the same prior and weight of the KL. Each keeps its own way of drawing.
"""

import math
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Setting:
    """What all contestants share."""

    lr: float
    weight_decay: float
    beta: float
    prior_std: float
    std_init: float
    examples: int

    @property
    def rho_init(self) -> float:
        """softplus(rho) = std."""
        return math.log(math.expm1(self.std_init))


class Posterior(NamedTuple):
    """What a weight, or a bias, has become."""

    name: str
    mean: Tensor
    rho: Tensor


class Plain:
    """The network without uncertainty."""

    is_random = False

    def __init__(self, net: nn.Module, setting: Setting) -> None:
        self.setting = setting
        device = next(net.parameters()).device  # before it is converted, in place, on a CPU
        first = {name: value.detach().clone() for name, value in net.named_parameters()}
        self.model = self.converted(net)
        self.begin_at(first)
        self.model.to(device, memory_format=torch.channels_last)
        self.optimizer = self.made_optimizer()

    def converted(self, net: nn.Module) -> nn.Module:
        """The network as this library wants it."""
        return net

    def posteriors(self) -> list[Posterior]:
        """Means and rhos, std = softplus(rho), of what this library made of the weights."""
        return []

    def begin_at(self, first: dict[str, Tensor]) -> None:
        """The network's own weights as the first means."""
        with torch.no_grad():
            for name, mean, _ in self.posteriors():
                mean.copy_(first[name])

    def made_optimizer(self) -> torch.optim.Optimizer:
        """SGD at one rate, as these libraries' own examples do; rhos do not decay."""
        rhos = [rho for _, _, rho in self.posteriors()]
        known = set(map(id, rhos))
        others = [p for p in self.model.parameters() if id(p) not in known]
        groups = [{"params": others, "weight_decay": self.setting.weight_decay}]
        if rhos:
            groups.append({"params": rhos, "weight_decay": 0.0})
        return torch.optim.SGD(groups, self.setting.lr, momentum=0.9)

    def drawn(self, train: bool) -> Any:
        """Where a pass happens."""
        del train
        return nullcontext()

    def kl(self) -> Tensor | float:
        """Nats from the prior."""
        return 0.0

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        """One step of training."""
        with self.drawn(train=True):
            with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda):
                logits = self.model(x)
            loss = F.cross_entropy(logits.float(), y)
            loss = loss + self.setting.beta / self.setting.examples * self.kl()
            loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def finish(self, batches: Callable[[], Iterable[Any]]) -> None:
        """What is left to do after training."""

    @torch.no_grad()
    def probs(self, x: Tensor, samples: int) -> Tensor:
        """(N, classes) mean of the samples' probabilities; without randomness one is enough."""
        total, count = 0.0, samples if self.is_random else 1
        for _ in range(count):
            with self.drawn(train=False), torch.autocast(
                x.device.type, torch.bfloat16, enabled=x.is_cuda
            ):  # fmt: skip
                logits = self.model(x)
            total = total + logits.float().softmax(1)
        return total / count

    def stored(self) -> Any:
        """What must be kept to predict."""
        return self.model.state_dict()


class BayesianTorch(Plain):
    """bayesian-torch: `dnn_to_bnn` with weights drawn by reparameterisation."""

    is_random = True

    def converted(self, net: nn.Module) -> nn.Module:
        """Every layer by its Bayesian twin."""
        from bayesian_torch.models.dnn_to_bnn import dnn_to_bnn

        own = self.setting
        dnn_to_bnn(net, {
            "prior_mu": 0.0, "prior_sigma": own.prior_std, "posterior_mu_init": 0.0,
            "posterior_rho_init": own.rho_init, "type": "Reparameterization",
            "moped_enable": False, "moped_delta": 0.5,
        })  # fmt: skip
        return net

    def posteriors(self) -> list[Posterior]:
        """Those of convolutions are called kernels."""
        return [
            Posterior(f"{path}.{kind}", mean, getattr(layer, f"rho_{own}"))
            for path, layer in self.model.named_modules()
            for kind, own in (("weight", "weight"), ("weight", "kernel"), ("bias", "bias"))
            if isinstance(mean := getattr(layer, f"mu_{own}", None), Tensor)
        ]

    def kl(self) -> Tensor | float:
        """The sum over all weights; the library's own takes the mean of each tensor's."""
        prior, total = self.setting.prior_std, 0.0
        for _, mean, rho in self.posteriors():
            std = F.softplus(rho)
            nats = (prior / std).log() + (std**2 + mean**2) / (2 * prior**2) - 0.5
            total = total + nats.sum()
        return total


class TorchUncertainty(Plain):
    """torch-uncertainty: its Bayesian layers in place of the network's own."""

    is_random = True

    def converted(self, net: nn.Module) -> nn.Module:
        """Layer by layer."""
        from torch_uncertainty.layers.bayesian import BayesConv2d, BayesLinear

        prior = {"prior_sigma_1": self.setting.prior_std, "prior_pi": 1.0,
                 "sigma_init": self.setting.rho_init}  # fmt: skip
        for parent in list(net.modules()):
            for name, layer in parent.named_children():
                own = prior | {"bias": getattr(layer, "bias", None) is not None}
                if isinstance(layer, nn.Conv2d):
                    new: nn.Module = BayesConv2d(
                        layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride,
                        layer.padding, layer.dilation, groups=layer.groups, **own,
                    )  # fmt: skip
                elif isinstance(layer, nn.Linear):
                    new = BayesLinear(layer.in_features, layer.out_features, **own)
                else:
                    continue
                setattr(parent, name, new)
        return net

    def posteriors(self) -> list[Posterior]:
        """What it calls sigma is rho."""
        return [
            Posterior(f"{path}.{kind}", mean, getattr(layer, f"{kind}_sigma"))
            for path, layer in self.model.named_modules()
            for kind in ("weight", "bias")
            if isinstance(mean := getattr(layer, f"{kind}_mu", None), Tensor)
        ]

    def kl(self) -> Tensor | float:
        """Of the last draw: these layers estimate it by their samples."""
        layers = [m for m in self.model.modules() if hasattr(m, "log_variational_posterior")]
        return sum(m.log_variational_posterior - m.log_prior for m in layers)  # type: ignore[misc]


class Ivon(Plain):
    """ivon: an optimiser that keeps a diagonal Gaussian over the weights."""

    is_random = True

    def made_optimizer(self) -> torch.optim.Optimizer:
        """With the settings that its authors give for a ResNet; its prior is its decay."""
        import ivon

        return ivon.IVON(
            self.model.parameters(), lr=self.setting.lr, ess=self.setting.examples,
            weight_decay=2e-4, beta2=1 - 1e-5, hess_init=0.5,
        )  # fmt: skip

    def drawn(self, train: bool) -> Any:
        """With weights drawn."""
        return self.optimizer.sampled_params(train=train)  # type: ignore[attr-defined]

    def stored(self) -> Any:
        """Means, and the Hessian's diagonal of each group, from which the stds come."""
        hessians = [group["hess"] for group in self.optimizer.param_groups]
        return {"model": self.model.state_dict(), "hessian": hessians}


class LastLayerLaplace(Plain):
    """laplace-torch: the plain network, then a Kronecker-factored Gaussian over its last layer."""

    def finish(self, batches: Callable[[], Iterable[Any]]) -> None:
        """Fits the Gaussian and its prior."""
        from laplace import Laplace

        self.model.eval().to(memory_format=torch.contiguous_format)
        self.laplace = Laplace(self.model, "classification", "last_layer", "kron")
        self.laplace.fit(_Sized(batches, self.setting.examples))
        self.laplace.optimize_prior_precision(method="marglik")

    def probs(self, x: Tensor, samples: int) -> Tensor:
        """Its default, in closed form: samples are not needed."""
        del samples
        found: Tensor = self.laplace(x, link_approx="probit")
        return found

    def stored(self) -> Any:
        """The network, and the factors of its last layer."""
        return {"model": self.model.state_dict(), "laplace": self.laplace.state_dict()}


class _Sized:
    """Batches with the number of examples where laplace-torch looks for it."""

    def __init__(self, batches: Callable[[], Iterable[Any]], examples: int) -> None:
        self.batches, self.dataset = batches, range(examples)

    def __iter__(self) -> Any:
        return iter(self.batches())

    def __len__(self) -> int:
        return sum(1 for _ in self.batches())


CONTESTANTS: dict[str, type[Plain]] = {
    "plain": Plain,
    "bayesian-torch": BayesianTorch,
    "torch-uncertainty": TorchUncertainty,
    "ivon": Ivon,
    "laplace-torch": LastLayerLaplace,
}
