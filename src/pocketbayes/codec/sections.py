"""Posteriors to sections and back; a codebook that several of them share is stored once."""

from collections.abc import Iterator, Mapping

from pocketbayes.codec.contents import Contents
from pocketbayes.codec.header import Header
from pocketbayes.errors import FormatError, PocketBayesError, require_count, warn
from pocketbayes.posteriors import FAMILIES, Codebook, Posterior, Shared


def codebooks_of(posteriors: Mapping[str, Posterior]) -> tuple[list[Codebook], dict[str, int]]:
    """The codebooks in use, and the number of the one that each posterior shares."""
    shared = {name: q.codebook for name, q in posteriors.items() if isinstance(q, Shared)}
    codebooks = list({id(codebook): codebook for codebook in shared.values()}.values())
    number = {id(codebook): k for k, codebook in enumerate(codebooks)}
    return codebooks, {name: number[id(codebook)] for name, codebook in shared.items()}


_LEAST_WEIGHTS, _WEIGHTS_PER_BYTE = 1 << 28, 64  # 1 GiB, or 256 times the file, as float32


def _most_weights(size: int) -> int:
    """That a file of so many bytes may stand for, unless the caller says otherwise."""
    return max(_LEAST_WEIGHTS, _WEIGHTS_PER_BYTE * size)


def say_if_many(posteriors: Mapping[str, Posterior], size: int) -> None:
    """Warns of a file of so many bytes that `posteriors_in` refuses."""
    weights, most = sum(q.shape.numel() for q in posteriors.values()), _most_weights(size)
    if weights > most:
        warn(
            f"the file stands for {weights:,} weights, zeros among them, and load and inspect "
            f"take {most:,} from one of {size:,} bytes: pass them max_weights={weights}"
        )


def require_few_weights(weights: int, size: int, max_weights: int | None) -> None:
    """An error if these are more than a file of so many bytes may stand for."""
    most = _most_weights(size)
    most = most if max_weights is None else require_count(max_weights, "max_weights")
    if weights > most:
        raise FormatError(
            f"it stands for more than {most:,} weights, so that predicting might take more "
            "memory than there is; if you trust the file, raise max_weights"
        )


def posteriors_in(
    file: Contents, header: Header, max_weights: int | None = None
) -> Iterator[tuple[str, Posterior]]:
    """Every posterior of a file, one by one, with the name of its parameter.

    A sparse one takes few bytes, however large the tensor is that stands for it in a forward pass.
    """
    weights = 0
    codebooks = [_codebook(file, number) for number in range(header.num_codebooks)]
    for name, family in header.posteriors.items():
        codebook = codebooks[header.codebooks[name]] if name in header.codebooks else None
        posterior = _posterior(file, name, FAMILIES[family], codebook)
        weights += posterior.shape.numel()
        require_few_weights(weights, file.file.size, max_weights)
        yield name, posterior


def _codebook(file: Contents, number: int) -> Codebook:
    arrays = {name: file.take(f"table/{number}/{name}") for name in Codebook.array_names}
    try:
        return Codebook.from_arrays(arrays)
    except PocketBayesError as error:
        raise FormatError(f"section table/{number}: {error}") from error


def _posterior(
    file: Contents, name: str, kind: type[Posterior], codebook: Codebook | None
) -> Posterior:
    arrays = {array: file.take(f"posterior/{name}/{array}") for array in kind.array_names}
    try:
        if issubclass(kind, Shared):
            return kind.from_arrays(arrays, codebook)
        return kind.from_arrays(arrays)
    except PocketBayesError as error:
        raise FormatError(f"section posterior/{name}: {error}") from error
