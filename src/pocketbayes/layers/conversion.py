"""From a plain network to a Bayesian one, and access to its posteriors."""

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from torch import nn

from pocketbayes.errors import ConversionError, nearest, require_choice, require_number, warn
from pocketbayes.layers.aliases import require_no_aliases
from pocketbayes.layers.bayesian import bayesian_modules, make_bayesian_, usual_estimator
from pocketbayes.layers.description import (
    attach_description,
    forget_calibration,
    update_description,
)
from pocketbayes.layers.estimators import ESTIMATORS
from pocketbayes.layers.heads import forget_head
from pocketbayes.layers.module import BayesianModule, plain_class_of, posteriors_of
from pocketbayes.layers.rules import Rules, pattern_of
from pocketbayes.layers.selection import Place, chosen, places_of
from pocketbayes.posteriors import Gaussian, Posterior, suitable_std

Net = TypeVar("Net", bound=nn.Module)
USUAL_PRIOR_STD = 0.05
MOST_LEFT = 0.05  # of the weights may stay deterministic without a word


def bayesianize_(
    net: Net,
    prior_std: float | None = None,
    std_init: float | None = None,
    estimator: str | None = None,
    include: Rules = None,
    exclude: Rules = None,
    bias: bool = False,
) -> Net:
    """Turns `net` into a Bayesian network, in place, and returns it.

    Every weight w of a Linear, Bilinear, Conv1d/2d/3d, ConvTranspose1d/2d/3d, Embedding,
    EmbeddingBag, MultiheadAttention (so TransformerEncoder too), RNN, LSTM, GRU or cell of one
    gets a posterior N(w, std_init^2) and a prior N(0, prior_std^2), also what weight or spectral
    normalisation divides by its norm. All else stays as it is: frozen weights, norms, activations
    with parameters, and bare parameters of your own modules are deterministic; `audit` lists
    them, and a warning tells of more than 5% of the weights. Tied weights share one posterior,
    of which each use is a draw of its own. The network still trains, saves, moves and compiles as
    before, but each forward pass is now a random draw, in training and in evaluation mode.
    Initialise or load weights before converting: afterwards `layer.weight` is a fresh draw, and
    writing into it is an error. Second derivatives through "lrt" are not supported. Several
    threads may predict with one model at once (`predict`, `evaluate`), but not train it or call
    it themselves.

    Args:
        net: any module, already on its device and in its dtype. It is changed.
        prior_std: std of the prior of every weight. None: `fit` learns one for each tensor, or
            keeps 0.05, by network and likelihood.
        std_init: std that every posterior starts with. None: a tenth of the root mean square of
            each tensor.
        estimator: how layers that are linear in their weight draw: "lrt" (local
            reparameterisation: fresh noise per output, least variance), "weight" (one weight
            sample per pass), "flipout" (one weight sample, random signs per example) or
            "mean" (no noise). Attention, recurrent and embedding layers always use "weight". None:
            "weight" in networks with attention, else "lrt": its noise is fresh for every token, so
            that what is pooled over many tokens would seem the surer the more there are.
        include: convert only modules that match; None means all. A name pattern such as
            "encoder.*" (shell style), a module type, a predicate `(name, module) -> bool`, or
            several of them. A module that matches brings everything inside it, frozen or not, but
            for "*", which brings what None does. A pattern that names a parameter which is no
            weight of a layer, but not its module, such as "*.experts.w1", makes it Bayesian, too:
            ["*", "*.experts.w1"] converts all and that. So do patterns that name biases and scales
            of norms, such as "*.norm1.weight".
        exclude: leave these alone; given in the same ways.
        bias: make biases, and the shifts of norms, Bayesian as well. Scales of norms are not, as a
            prior around zero pulls at their channels; only patterns that name them convert them.

    Raises:
        ConversionError: the network is already Bayesian, has a parameter this cannot handle,
            or a pattern matches nothing. The network is then unchanged.

    Example:
        >>> net = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))
        >>> model = bayesianize_(net, prior_std=0.1, exclude="2")
    """
    if not isinstance(net, nn.Module):
        raise ConversionError(f"bayesianize_ takes a torch.nn.Module, not {type(net).__name__}")
    if prior_std is not None:
        prior_std = require_number(prior_std, "prior_std", above=0, most=1e6)
    if std_init is not None:
        std_init = require_number(std_init, "std_init", above=0, most=1e6)
    if not isinstance(bias, bool):
        raise ConversionError(f"bias must be True or False; got {bias!r}")
    estimator = usual_estimator(net) if estimator is None else estimator
    require_choice(estimator, "estimator", ESTIMATORS)
    _require_plain(net)
    found, left = chosen(net, include, exclude, bias)
    parameters = {id(place.parameter): place.parameter for place in found}
    posteriors: dict[int, Posterior] = {
        key: Gaussian.around(
            parameter, std_init or suitable_std(parameter), prior_std or USUAL_PRIOR_STD
        )
        for key, parameter in parameters.items()
    }
    _convert_(net, found, posteriors, estimator)
    attach_description(net)
    update_description(net, prior=None if prior_std is None else "fixed")
    _warn_of_what_is_left(net, left)
    return net


def _warn_of_what_is_left(net: nn.Module, left: Mapping[str, nn.Parameter]) -> None:
    """Says so where a good part of a network stays deterministic, and nobody asked for that."""
    sizes = {id(parameter): parameter.numel() for parameter in left.values()}
    missing = sum(sizes.values())
    share = missing / (missing + sum(q.shape.numel() for _, q in named_posteriors(net)))
    if share <= MOST_LEFT:
        return
    largest = sorted(left, key=lambda name: -left[name].numel())
    modules = {name: net.get_submodule(name.rpartition(".")[0]) for name in left}
    told = ", ".join(f"{n} of {plain_class_of(modules[n]).__name__}" for n in largest[:3])
    more = f" and {len(left) - 3} more" if len(left) > 3 else ""
    real = [name for name in largest if left[name].is_floating_point()]
    named = f"include=['*', {pattern_of(real[0])!r}]" if real else ""
    advice = f"{named} makes that one Bayesian, too; " if real else ""
    warn(
        f"{share:.0%} of the weights stay deterministic: {told}{more}. {advice}exclude=... leaves "
        "them in peace"
    )


def require_parameters(net: nn.Module, names: Iterable[str]) -> None:
    """Refuses names that no parameter of the network has."""
    named = dict(net.named_parameters())
    for name in names:
        if name not in named:
            raise ConversionError(f"the network has no parameter {name!r}{nearest(name, named)}")


def adopt_posteriors_(net: nn.Module, posteriors: Mapping[str, Posterior], estimator: str) -> None:
    """Makes exactly the parameters of these names Bayesian, each by the posterior given."""
    _require_plain(net)
    require_parameters(net, posteriors)
    named = dict(net.named_parameters())
    chosen: dict[int, Posterior] = {}
    for name, posterior in posteriors.items():
        if named[name].shape != posterior.shape:
            raise ConversionError(
                f"{name} is {tuple(named[name].shape)} in the network, but its posterior is "
                f"{tuple(posterior.shape)}"
            )
        chosen[id(named[name])] = posterior
    found = places_of(net, (named[name] for name in posteriors))
    missed = set(chosen) - {id(place.parameter) for place in found}
    for name in posteriors:
        if id(named[name]) in missed:
            raise ConversionError(f"{name} belongs to a layer that cannot be made Bayesian")
    _freeze_as(posteriors, {name for name in posteriors if named[name].requires_grad})
    _convert_(net, found, chosen, estimator)


def _freeze_as(posteriors: Mapping[str, Posterior], learning: set[str]) -> None:
    """Lets the parameters of these posteriors learn, and a codebook if one of its users does."""
    learns: dict[int, bool] = {}
    for name, posterior in posteriors.items():
        for parameter in posterior.parameters():
            learns[id(parameter)] = learns.get(id(parameter), False) or name in learning
    for posterior in posteriors.values():
        for parameter in posterior.parameters():
            parameter.requires_grad_(learns[id(parameter)])


def named_posteriors(model: nn.Module) -> Iterator[tuple[str, Posterior]]:
    """Yields (name of the parameter, its posterior); a tied posterior once, by its first name."""
    seen: set[int] = set()
    for prefix, module in bayesian_modules(model):
        for name, posterior in posteriors_of(module).by_name().items():
            if id(posterior) not in seen:
                seen.add(id(posterior))
                yield f"{prefix}.{name}".lstrip("."), posterior


def owners_of(model: nn.Module, name: str) -> list[BayesianModule]:
    """The layers that a posterior, by its first name, belongs to: several if it is tied."""
    known = dict(named_posteriors(model))[name]
    return [
        module
        for _, module in bayesian_modules(model)
        if any(q is known for q in posteriors_of(module).by_name().values())
    ]


def replace_posterior(model: nn.Module, name: str, posterior: Posterior) -> None:
    """Puts `posterior` in place of the one called `name`, wherever that is tied to.

    What `temperature_`, `conformal` and `distill_` found is dropped.
    """
    known = dict(named_posteriors(model))
    if name not in known:
        raise ConversionError(f"no posterior is called {name!r}{nearest(name, known)}")
    if posterior.shape != known[name].shape:
        raise ConversionError(
            f"{name} has shape {tuple(known[name].shape)}, but its replacement "
            f"{tuple(posterior.shape)}"
        )
    forget_calibration(model)
    forget_head(model)
    for _, module in bayesian_modules(model):
        own = posteriors_of(module)
        for key, q in own.by_name().items():
            if q is known[name]:
                own[key] = posterior.train(module.training)


def _require_plain(net: nn.Module) -> None:
    if any(True for _ in bayesian_modules(net)):
        raise ConversionError(
            "this network is already Bayesian; use it as it is, or convert a fresh copy"
        )


def _convert_(
    net: nn.Module, found: list[Place], posteriors: Mapping[int, Posterior], estimator: str
) -> None:
    """Makes one Bayesian layer per module, from the posterior of each parameter's id."""
    layers: dict[int, dict[str, Posterior]] = {}
    require_no_aliases(net, {place.full_name: place.parameter for place in found})
    for place in found:
        layers.setdefault(id(place.module), {})[place.name] = posteriors[id(place.parameter)]
    for place in found:
        if not isinstance(place.module, BayesianModule):
            layer = layers[id(place.module)]
            ordered = {name: layer[name] for name in place.module._parameters if name in layer}
            make_bayesian_(place.module, place.behaviour, ordered, estimator)
    _leave_fast_paths_(net)


def _leave_fast_paths_(net: nn.Module) -> None:
    """Keeps torch's encoders from fused kernels, which read weights but never call layers."""
    for module in net.modules():
        if any(True for _ in bayesian_modules(module)):
            if isinstance(module, nn.TransformerEncoderLayer):
                module.activation_relu_or_gelu = 0
            if isinstance(module, nn.TransformerEncoder):
                module.use_nested_tensor = False
