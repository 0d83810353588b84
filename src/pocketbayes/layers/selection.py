"""Which parameters of a network become posteriors: the kinds of layers, rules, and ties."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import NamedTuple

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.instancenorm import _InstanceNorm
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from torch.nn.parameter import is_lazy

from pocketbayes.errors import ConversionError, nearest
from pocketbayes.layers.bayesian import (
    AttentionLayer,
    EmbeddingLayer,
    RecurrentLayer,
    SampledLayer,
)
from pocketbayes.layers.linear import LinearLayer
from pocketbayes.layers.module import BayesianModule

Rule = str | type[nn.Module] | Callable[[str, nn.Module], bool]
Rules = Rule | Iterable[Rule] | None

LINEAR = (
    nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d,
    nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d,
)  # fmt: skip
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


def places(net: nn.Module, include: Rules, exclude: Rules, bias: bool) -> list[Place]:
    """Every parameter that becomes a posterior, tied ones once per module; or an error."""
    selected = _selected(net, include, exclude)
    found: list[Place] = []
    for name, module in net.named_modules():
        if id(module) in selected:
            found += _places_in(name, module, bias)
    if not found:
        raise ConversionError(
            "nothing to convert: no selected module has a weight that can be Bayesian; "
            "check include= and exclude=, or the network itself with print(audit(net))"
        )
    _check_ties(net, found)
    return found


def places_of(net: nn.Module, parameters: Iterable[nn.Parameter]) -> list[Place]:
    """Every place of these very parameters, tied ones once per module; biases are among them."""
    wanted = {id(parameter) for parameter in parameters}
    found: list[Place] = []
    for name, module in net.named_modules():
        if any(id(p) in wanted for p in module._parameters.values()):
            places = _places_in(name, module, bias=True)
            found += [place for place in places if id(place.parameter) in wanted]
    return found


def kind_of(module: nn.Module) -> Kind | None:
    """How this module becomes Bayesian; None if it is not a kind that does."""
    for plain in LINEAR:
        if isinstance(module, plain):
            linear = _has_the_arithmetic_of(module, plain)
            return Kind(LinearLayer if linear else SampledLayer, ("weight",), ("bias",))
    if isinstance(module, nn.Embedding):
        return Kind(EmbeddingLayer, ("weight",), ())
    if isinstance(module, nn.MultiheadAttention):
        projections = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")
        return Kind(AttentionLayer, projections, ("in_proj_bias", "bias_k", "bias_v"))
    if isinstance(module, nn.LSTM | nn.GRU):
        names = module._flat_weights_names
        weights, biases = (tuple(n for n in names if n.startswith(k)) for k in ("weight", "bias"))
        return Kind(RecurrentLayer, weights, biases)
    if isinstance(module, NORMS):
        return Kind(SampledLayer, (), ("bias",))
    return None


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
        if kind and not parameter.is_floating_point():
            raise ConversionError(
                f"{where}.{parameter_name} has dtype {parameter.dtype}: a posterior needs real "
                f"floating point; {hint}"
            )
    if kind is None:
        _check_is_known(where, module, own, hint)
        return []
    missing = [n for n in kind.weights if n not in module._parameters]
    if missing:
        raise ConversionError(
            f"{where}.{missing[0]} is not a parameter but computed (weight_norm, spectral_norm "
            f"or another parametrisation): remove that first, or {hint}"
        )
    if isinstance(module, nn.Embedding) and module.sparse:
        raise ConversionError(
            f"{where} has sparse=True, but a posterior's gradient is dense: set it to False, "
            f"or {hint}"
        )
    names = (*kind.weights, *(kind.biases if bias else ()))
    return [Place(name, module, n, kind.behaviour) for n in names if n in own]


def _check_is_known(where: str, module: nn.Module, own: dict[str, nn.Parameter], hint: str) -> None:
    if own and not isinstance(module, nn.PReLU) and library_type(module) is not None:
        raise ConversionError(
            f"{where} is a {type(module).__name__}, which has parameters but cannot be made "
            f"Bayesian: {hint} to keep it deterministic"
        )


def _selected(net: nn.Module, include: Rules, exclude: Rules) -> set[int]:
    """The ids of the modules that the rules let through; what is inside a match goes with it."""
    modules = dict(net.named_modules(remove_duplicate=False))
    included = set(modules) if include is None else _matches(modules, include, "include")
    excluded = set() if exclude is None else _matches(modules, exclude, "exclude")
    wanted = {id(modules[name]) for name in included}
    return wanted - {id(modules[name]) for name in excluded}


def _matches(modules: dict[str, nn.Module], rules: Rules, argument: str) -> set[str]:
    several = isinstance(rules, Iterable) and not isinstance(rules, str | type)
    found: set[str] = set()
    for rule in rules if several else [rules]:  # type: ignore[union-attr]
        hits = {n for n, m in modules.items() if _obeys(n, m, rule, argument)}
        if isinstance(rule, str) and not hits:
            raise ConversionError(
                f"{argument}={rule!r} matches no module of the network{nearest(rule, modules)}"
            )
        found |= hits
    return {n for n in modules if any(n == f or not f or n.startswith(f + ".") for f in found)}


def _obeys(name: str, module: nn.Module, rule: object, argument: str) -> bool:
    if isinstance(rule, str):
        return fnmatchcase(name, rule)
    if isinstance(rule, type):
        return isinstance(module, rule)
    if callable(rule):
        try:
            return bool(rule(name, module))
        except TypeError as error:
            raise ConversionError(
                f"{argument}'s predicate failed on {name or 'the root'}: {error}; it is called "
                "with the module's name and the module"
            ) from error
    raise ConversionError(
        f"{argument} takes name patterns, module types or predicates (name, module) -> bool; "
        f"got {rule!r}"
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
