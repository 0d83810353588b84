"""Models to files and back."""

import os
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from pocketbayes.codec.bases import base_in, base_left_out, freeze_base_, require_base_given
from pocketbayes.codec.container import (
    opened,
    packed,
    read_description,
    room_beside,
    write_container,
)
from pocketbayes.codec.contents import Contents, coded, contents_of, require_room
from pocketbayes.codec.extra_state import is_extra, value_in
from pocketbayes.codec.header import Header, header_of, model_in
from pocketbayes.codec.heads import (
    NAMES,
    make_room_for_head,
    require_finite_part,
    require_head,
    require_sound_head,
)
from pocketbayes.codec.layout import Options, options_behind
from pocketbayes.codec.networks import Factory, given_network, network_named, network_to_fill
from pocketbayes.codec.portable import portable_in, remember_inputs, section_of
from pocketbayes.codec.sections import codebooks_of, posteriors_in, say_if_many
from pocketbayes.codec.soundness import require_finite
from pocketbayes.codec.state import lost_in_float16, plain_state, replace_state_, unchanged_on_error
from pocketbayes.codec.steps import TOLERANCE
from pocketbayes.codec.summary import FileSummary, summary_of
from pocketbayes.codec.tally import tally_of
from pocketbayes.errors import FormatError, PocketBayesError, require_number, warn
from pocketbayes.layers import (
    NOISES,
    Description,
    add_noise_parameter,
    adopt_posteriors_,
    attach_description,
    bayesian_modules,
    describe,
    description_to_store,
    has_description,
    has_stale_head,
    head_knows_weights,
    members_of,
    named_posteriors,
    narrow_to_,
    require_parameters,
    share_description,
    unwrapped,
)
from pocketbayes.posteriors import FAMILIES, Codebook, Posterior


def save(
    model: nn.Module,
    path: str | os.PathLike[str],
    *,
    tolerance: float = TOLERANCE,
    lossless: bool = False,
    exact_state: bool = False,
    example: Tensor | tuple[Tensor, ...] | None = None,
    network: str | Mapping[str, Any] | None = None,
    frozen: bool = True,
) -> FileSummary:
    """Writes the model into one small file that `load` turns back into it.

    The file is a valid safetensors file: coded numbers and a JSON description, no code. It is
    written under a temporary name, synced and renamed, so it is whole or not there. Equal models
    give equal bytes, on every machine.

    Args:
        model: a Bayesian model, trained or not, or an ensemble.
        path: where to; by habit it ends in `.pocket`.
        tolerance: nats by which the stored posterior of any weight may differ from the model's,
            KL(model || file); of a weight with an inclusion variable, nats of each of the two.
            Smaller is larger: a quarter costs about two bits a weight. The default is 0.01.
        lossless: keep every bit of everything.
        exact_state: keep every bit of what is deterministic (biases, norms, point weights), which
            else is stored as float16 where that is near enough; buffers other than those of batch
            norms always keep every bit.
        example: a batch of inputs as the model sees them, x[:1] for instance (a tuple: all
            arguments of `forward`). The file then also carries the network itself as a program of
            a few hundred bytes, so that readers without torch can compute it. A model that was
            loaded from such a file keeps it: its network is traced anew.
        network: "timm:resnet50", "transformers:bert-base-uncased": the file is to name this network
            of another library, so that `load(path, allow=("timm",))` builds it. It also names
            the arguments or configuration that the model tells, and is the one of the model,
            or an error; {"name": ..., "options": {...}} gives arguments that the model does not
            tell. None: a model that such a library made, unchanged since, is found by itself.
        frozen: False leaves out what was not trained: frozen parameters (`requires_grad` is False)
            and buffers, but for statistics of norms. The file names this base by a digest, and
            `load(path, net)` wants a network that has it. For adapters on a large network.

    Returns:
        `FileSummary`: the real bytes on disk, by section, beside what the frequencies of the
        numbers in it allow, the model's KL, and the nats that storing lost; prints as a table.

    Raises:
        PocketBayesError: a weight, its std or a batch norm's statistic is NaN or infinite.
        ProgramError: with an example, an operation that no program can hold, by its name, or a
            layer that refuses the example.

    Example:
        >>> size = save(model, "resnet18.pocket", example=images[:1])
        >>> size.bytes, size.bits_per_weight
    """
    if not isinstance(model, nn.Module) or not any(True for _ in bayesian_modules(model)):
        raise PocketBayesError("save takes a Bayesian model: call bayesianize_(net) first")
    require_number(tolerance, "tolerance", above=1e-9, most=1.0)
    model = unwrapped(model)
    _say_if_stale(model)
    family = {kind: name for name, kind in FAMILIES.items()}
    posteriors = dict(named_posteriors(model))
    families = {name: family[type(q)] for name, q in posteriors.items()}
    tally = tally_of(posteriors.items(), families, describe(model).decay_std)
    codebooks, numbers = codebooks_of(posteriors)
    left_out, base = (set[str](), None) if frozen else base_left_out(model, example)
    arrays = _arrays(model, posteriors, codebooks, left_out)
    require_finite(arrays)
    options = Options(tolerance, lossless, exact_state)
    exact = {f"state/{name}" for name in lost_in_float16(model)}
    description = {
        "model": description_to_store(model).to_facts()
        | {"network": network_named(model, network, frozen)}
        | ({} if base is None else {"base": base}),
        "members": len(members_of(model)),
        "posteriors": families,
    } | ({"tables": numbers} if numbers else {})
    program = section_of(model, example, families, plain_state(model)) if frozen else None
    with room_beside(Path(path)) as room:
        made = coded(arrays, families, options, room, exact)
        pieces, file = packed(description | made.description, made.sections, program)
        require_room(made.specs, file.size)
        say_if_many(posteriors, file.size)
        contents = Contents(file, made.specs, made.parts)
        header = header_of(contents)
        portable = portable_in(contents, header, tally.shapes)
        summary = summary_of(contents, header, tally, portable and portable.facts(tally.active))
        write_container(Path(path), pieces)
    return summary


def _say_if_stale(model: nn.Module) -> None:
    if has_stale_head(model):
        warn(
            "the weights have changed since distill_, so the file is written without the one-pass "
            "head: call distill_ again before save",
        )


def _arrays(
    model: nn.Module,
    posteriors: dict[str, Posterior],
    codebooks: list[Codebook],
    left_out: Collection[str],
) -> dict[str, Tensor]:
    """Everything that determines the model, by name, but for what the file leaves out."""
    arrays = {
        f"posterior/{name}/{array}": tensor
        for name, posterior in posteriors.items()
        for array, tensor in posterior.arrays().items()
    }
    arrays |= {
        f"table/{number}/{array}": tensor
        for number, codebook in enumerate(codebooks)
        for array, tensor in codebook.arrays().items()
    }
    state = {n: tensor for n, tensor in plain_state(model).items() if n not in left_out}
    return arrays | {f"state/{name}": tensor for name, tensor in state.items()}


def load(
    path: str | os.PathLike[str],
    net: nn.Module | Factory | None = None,
    *,
    allow: Collection[str] = (),
    max_weights: int | None = None,
) -> nn.Module:
    """The model in a file, in evaluation mode, ready for `predict`.

    Safe on files from anywhere: they hold no code, sizes are checked before anything is
    allocated, and a checksum tells damage (not forgery: it is no signature).

    Args:
        path: a file written by `save`.
        net: a plain network of the same form, or as it was before `shrink`, for a file of a network
            that is not the library's own; or a class or function without arguments that makes one.
            It is converted, in place, and every name and shape is checked; after an error it is as
            it was.
        allow: libraries, of "timm" and "transformers", that may build the network which the file
            names: by their own tables, without downloads and without code from the file.
        max_weights: as many weights the file may stand for; the sparse ones, which take few bytes,
            become dense tensors in predictions. None: 2^28 or, if that is more, 64 for each byte
            of the file.

    Raises:
        FormatError: the file is damaged, of another kind, or does not fit the network.

    Example:
        >>> model = load("resnet18.pocket")
        >>> model = load("mine.pocket", MyNet)
    """
    plain = given_network(net)
    with opened(Path(path)) as file:
        contents = contents_of(file)
        header = header_of(contents)
        require_head(header)
        require_base_given(header, plain)
        model = network_to_fill(header, contents, plain, allow, max_weights)
        base = base_in(model, header)
        with unchanged_on_error(model):
            _filled(model, header, contents, max_weights, base)
            shapes = {name: q.shape for name, q in named_posteriors(model)}
            remember_inputs(model, portable_in(contents, header, shapes))
    freeze_base_(model, base)
    return model if plain is None or header.members > 1 else plain.eval()


def inspect(path: str | os.PathLike[str], *, max_weights: int | None = None) -> FileSummary:
    """What a file holds, without building its network; prints as a table.

    Args:
        path: a file written by `save`.
        max_weights: as in `load`, which refuses the same files.

    Example:
        >>> print(inspect("resnet18.pocket"))
    """
    with opened(Path(path)) as file:
        contents = contents_of(file)
        header = header_of(contents)
        require_head(header)
        passing = posteriors_in(contents, header, max_weights)
        tally = tally_of(passing, header.posteriors, header.model.decay_std)
        for name in header.state:
            array = contents.take(f"state/{name}")
            if is_extra(name):
                value_in(name, array)
            if header.model.one_pass is not None and name in NAMES:
                require_finite_part(name, array)
        portable = portable_in(contents, header, tally.shapes)
        return summary_of(contents, header, tally, portable and portable.facts(tally.active))


def described(path: str | os.PathLike[str]) -> Description:
    """What a file says of its model, at once: `load` finds out whether the rest is whole."""
    description = read_description(Path(path))
    try:
        return model_in(description)
    except FormatError as error:
        raise FormatError(f"{path}: {error}") from error


def stored_with(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Options with which `save` writes the posteriors of this file once more as they are."""
    with opened(Path(path)) as file:
        contents_of(file)
        sections = file.description.get("sections", {})
    found = options_behind({name: said.get("step") for name, said in sections.items()})
    return {} if found is None else {"tolerance": found.tolerance, "lossless": found.lossless}


def _filled(
    model: nn.Module,
    header: Header,
    file: Contents,
    max_weights: int | None,
    base: Collection[str],
) -> None:
    """Gives the network the posteriors and the deterministic state of the file."""
    require_parameters(model, header.posteriors)  # before any is decoded
    posteriors = dict(posteriors_in(file, header, max_weights))
    if header.model.shrunk is not None and header.members == 1:
        shapes = {name: tuple(q.shape) for name, q in posteriors.items()}
        shapes |= {name: file.specs[f"state/{name}"].shape for name in header.state}
        narrow_to_(model, shapes, header.model.shrunk)
    adopt_posteriors_(model, posteriors, header.model.estimator or "lrt")
    for member in members_of(model):
        attach_description(member)
    share_description({model, *members_of(model)}, header.model)
    for prefix, module in model.named_modules():
        for name in NOISES if has_description(module) else ():
            noise = f"{prefix}.{name}".lstrip(".")
            if noise in header.state:
                add_noise_parameter(module, file.specs[f"state/{noise}"].shape, name)
    make_room_for_head(model, header, file)
    replace_state_(model, header.state, lambda name: file.take(f"state/{name}"), base)
    require_sound_head(model)
    head_knows_weights(model)
    model.eval()
