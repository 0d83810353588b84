"""Which parameters of a network become posteriors: the kinds of layers, rules, and ties."""

from collections import defaultdict
from collections.abc import Container, Iterable
from typing import NamedTuple

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from pocketbayes.errors import ConversionError
from pocketbayes.layers.bayesian import AttentionLayer, RecurrentLayer, SampledLayer
from pocketbayes.layers.embeddings import EmbeddingLayer
from pocketbayes.layers.linear import LinearLayer
from pocketbayes.layers.module import BayesianModule
from pocketbayes.layers.normalised import normalised_weights
from pocketbayes.layers.rules import Rules, listed, named_parameters, pattern_of, selected_modules

LINEAR = (
    nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d,
    nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
)  # fmt: skip
# Of other libraries: linear in `weight`, which may lie transposed, by a forward of their own.
FOREIGN = {"transformers.pytorch_utils.Conv1D", "torch_geometric.nn.dense.linear.Linear"}
ADAPTERS = {"loralib.layers.LoRALayer": ("lora_A", "lora_B")}  # beside torch's own parameters
NORMS = (_BatchNorm, _InstanceNorm, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)
# torch's modules that only hold others, or parameters that belong to whoever uses them.
TRANSPARENT = {
    nn.Module, nn.Sequential, nn.ModuleList, nn.ModuleDict, nn.ParameterList, nn.ParameterDict,
    nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder, nn.TransformerEncoderLayer,
    nn.TransformerDecoderLayer,
}  # fmt: skip


class Kind(NamedTuple):
    """How one type of module becomes Bayesian, and the names of its parameters."""

    behaviour: type[BayesianModule]
    weights: tuple[str, ...]
    biases: tuple[str, ...]


class Place(NamedTuple):
    """One parameter of one module that is to become a posterior."""

    module_name: str
    module: nn.Module
    name: str
    behaviour: type[BayesianModule]

    @property
    def parameter(self) -> nn.Parameter:
        """The parameter itself."""
        found = self.module._parameters[self.name]
        assert found is not None
        return found

    @property
    def full_name(self) -> str:
        """The parameter's name in the network."""
        return f"{self.module_name}.{self.name}".lstrip(".")


class Choice(NamedTuple):
    """What becomes Bayesian of a network, and what of the rest nobody spoke of."""

    places: list[Place]
    left: dict[str, nn.Parameter]


def chosen(net: nn.Module, include: Rules, exclude: Rules, bias: bool) -> Choice:
    """Every parameter that becomes a posterior, tied ones once per module; or an error.

    Frozen ones do not, unless `include` asks for them, other than by "*". What is left are the
    matrices that learn, of own modules which the rules let through.
    """
    selected, named = (
        selected_modules(net, include, exclude),
        named_parameters(net, include, exclude),
    )
    found: list[Place] = []
    for name, module in net.named_modules():
        if id(module) in selected:
            found += _places_in(name, module, bias)
        found += _bare_places_in(name, module, named)
    asked = named | _asked_for(net, include, exclude)
    found = [
        p for p in found if p.parameter.requires_grad or {id(p.module), id(p.parameter)} & asked
    ]
    taken = {id(place.parameter) for place in found}
    left = [
        Place(name, module, own, SampledLayer)
        for name, module in net.named_modules()
        if id(module) in selected
        for own, parameter in module._parameters.items()
        if parameter is not None and parameter.requires_grad and id(parameter) not in taken
    ]
    if not found:
        raise ConversionError(f"nothing to convert: {_why_nothing(left)}")
    _check_ties(net, found)
    _check_is_finite(found)
    return Choice(found, {place.full_name: place.parameter for place in left if _is_weight(place)})


def _is_weight(place: Place) -> bool:
    """Whether it is a matrix, and no shift or scale of a norm."""
    is_of_norm = isinstance(place.module, NORMS) and place.name in ("weight", "bias")
    return not is_of_norm and sum(side > 1 for side in place.parameter.shape) > 1


def _asked_for(net: nn.Module, include: Rules, exclude: Rules) -> set[int]:
    """Modules that a rule other than "*" lets through, with what is frozen in them."""
    rules = [rule for rule in listed(include) if rule != "*"]
    return selected_modules(net, rules, exclude)


def _why_nothing(left: list[Place]) -> str:
    real = [place.full_name for place in left if place.parameter.is_floating_point()]
    if not real:
        return (
            "no selected module has a weight that learns and can be Bayesian; check include= and "
            "exclude=, requires_grad, or the network with print(audit(net))"
        )
    more = f" and {len(real) - 1} more" if len(real) > 1 else ""
    return (
        f"what learns is bare or a bias, {real[0]}{more}, and becomes Bayesian where a pattern "
        f"names it: include=[{pattern_of(real[0])!r}]"
    )


def places_of(net: nn.Module, parameters: Iterable[nn.Parameter]) -> list[Place]:
    """Every place of these very parameters, tied ones once per module; biases are among them."""
    wanted = {id(parameter) for parameter in parameters}
    found: list[Place] = []
    for name, module in net.named_modules():
        if any(id(p) in wanted for p in module._parameters.values()):
            places = _places_in(name, module, bias=True) + _bare_places_in(name, module, wanted)
            found += [place for place in places if id(place.parameter) in wanted]
    return found


def kind_of(module: nn.Module) -> Kind | None:
    """How this module becomes Bayesian; None if it is not a kind that does."""
    normalised = normalised_weights(module)
    if normalised is not None:
        has_bias = not isinstance(module, parametrize.ParametrizationList)
        return Kind(SampledLayer, normalised, ("bias",) if has_bias else ())
    for plain in LINEAR:
        if isinstance(module, plain):
            linear = _has_the_arithmetic_of(module, plain)
            return Kind(LinearLayer if linear else SampledLayer, ("weight",), ("bias",))
    if isinstance(module, nn.Embedding | nn.EmbeddingBag):
        return Kind(EmbeddingLayer, ("weight",), ())
    if isinstance(module, nn.MultiheadAttention):
        projections = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")
        return Kind(AttentionLayer, projections, ("in_proj_bias", "bias_k", "bias_v"))
    if isinstance(module, nn.RNNBase):
        names = module._flat_weights_names
        weights, biases = (tuple(n for n in names if n.startswith(k)) for k in ("weight", "bias"))
        return Kind(RecurrentLayer, weights, biases)
    if isinstance(module, nn.RNNCellBase):
        return Kind(SampledLayer, ("weight_ih", "weight_hh"), ("bias_ih", "bias_hh"))
    if isinstance(module, nn.Bilinear) or any(
        _path(base) in FOREIGN for base in type(module).__mro__
    ):
        return Kind(SampledLayer, ("weight",), ("bias",))
    if isinstance(module, NORMS):
        return Kind(SampledLayer, (), ("bias",))
    return None


def _path(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def library_type(module: nn.Module) -> type[nn.Module] | None:
    """The class of torch's that owns this module's parameters; None for the user's own."""
    for base in type(module).__mro__:
        if base in TRANSPARENT:
            return None
        if base.__module__.partition(".")[0] == "torch":
            return base
    return None


def _has_the_arithmetic_of(module: nn.Module, plain: type[nn.Module]) -> bool:
    """Whether a subclass computes as `plain` does; attention only reads its output projection."""
    names = ("forward", "_conv_forward")
    same = all(getattr(type(module), n, None) is getattr(plain, n, None) for n in names)
    return same and not isinstance(module, NonDynamicallyQuantizableLinear)


def _places_in(name: str, module: nn.Module, bias: bool) -> list[Place]:
    own = {n: p for n, p in module._parameters.items() if p is not None}
    kind = kind_of(module)
    where = name or "the root module"
    hint = f"exclude it with exclude={name!r}" if name else "there is nothing else to convert"
    for parameter_name, parameter in own.items():
        if is_lazy(parameter):
            raise ConversionError(
                f"{where} ({type(module).__name__}) is lazy and not yet materialised: "
                f"run one batch through the network first, or {hint}"
            )
        if kind:
            _require_real(f"{where}.{parameter_name}", parameter, hint)
    adapter = _adapter_of(where, module)
    if kind is None:
        _check_is_known(where, module, own, hint)
        return [Place(name, module, n, SampledLayer) for n in adapter]
    missing = [n for n in kind.weights if n not in module._parameters]
    if missing:
        raise ConversionError(
            f"{where}.{missing[0]} is not a parameter but computed by a parametrisation: remove "
            f"that first, or {hint}"
        )
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse:
        raise ConversionError(
            f"{where} has sparse=True, but a posterior's gradient is dense: set it to False, "
            f"or {hint}"
        )
    names = (*kind.weights, *adapter, *(kind.biases if bias else ()))
    return [Place(name, module, n, kind.behaviour) for n in names if n in own]


def _adapter_of(where: str, module: nn.Module) -> tuple[str, ...]:
    """What loralib's layers have beside torch's own parameters."""
    names = (names for base in type(module).__mro__ for names in [ADAPTERS.get(_path(base), ())])
    found = tuple(name for several in names for name in several if name in module._parameters)
    if found and getattr(module, "merge_weights", False):
        raise ConversionError(
            f"{where} adds its adapter to its weight in eval(), where no draw "
            "would reach it: make it with merge_weights=False"
        )
    return found


def _require_real(name: str, parameter: nn.Parameter, hint: str) -> None:
    if not parameter.is_floating_point():
        raise ConversionError(
            f"{name} has dtype {parameter.dtype}: a posterior needs real floating point; {hint}"
        )


def _bare_places_in(name: str, module: nn.Module, wanted: Container[int]) -> list[Place]:
    """Parameters that are not a weight of a layer of torch's, each drawn when it is read."""
    kind = kind_of(module)
    if kind is None and library_type(module) is not None:
        return []
    drawn = () if kind is None else kind.weights
    own = {
        n: p
        for n, p in module._parameters.items()
        if p is not None and id(p) in wanted and n not in drawn
    }
    for parameter_name, parameter in own.items():
        _require_real(f"{name}.{parameter_name}".lstrip("."), parameter, "leave it out")
    return [Place(name, module, n, kind.behaviour if kind else SampledLayer) for n in own]


def _check_is_known(where: str, module: nn.Module, own: dict[str, nn.Parameter], hint: str) -> None:
    if own and not isinstance(module, nn.PReLU) and library_type(module) is not None:
        raise ConversionError(
            f"{where} is a {type(module).__name__}, which has parameters but cannot be made "
            f"Bayesian: {hint} to keep it deterministic"
        )


def _check_is_finite(found: list[Place]) -> None:
    """A layer may hold memory that nobody has filled."""
    for place in found:
        finite = place.parameter.isfinite()
        if not place.parameter.is_meta and not finite.all():
            raise ConversionError(
                f"{place.full_name} is not finite in {int((~finite).sum())} of {finite.numel()} "
                f"places: set or load it before bayesianize_, or exclude={place.module_name!r}"
            )


def _check_ties(net: nn.Module, found: list[Place]) -> None:
    """A parameter may not be a posterior in one module and a plain parameter in another."""
    converted = {(id(p.module), p.name) for p in found}
    uses: dict[int, list[tuple[str, bool]]] = defaultdict(list)
    for module_name, module in net.named_modules():
        for name, parameter in module._parameters.items():
            full = f"{module_name}.{name}".lstrip(".")
            uses[id(parameter)].append((full, (id(module), name) in converted))
    for place in found:
        for other, is_converted in uses[id(place.parameter)]:
            if not is_converted:
                raise ConversionError(
                    f"{place.full_name} and {other} are one tied parameter, but only the first "
                    f"would become Bayesian: include or exclude both"
                )
