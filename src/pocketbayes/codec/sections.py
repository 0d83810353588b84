"""Posteriors to sections and back; a table that several of them look into is stored once."""

from collections.abc import Iterator, Mapping

from pocketbayes.codec.contents import Contents
from pocketbayes.codec.header import Header
from pocketbayes.errors import FormatError, PocketBayesError
from pocketbayes.posteriors import FAMILIES, Posterior, Shared, Table


def tables_of(posteriors: Mapping[str, Posterior]) -> tuple[list[Table], dict[str, int]]:
    """The tables in use, and the number of the one that each posterior looks into."""
    shared = {name: q.table for name, q in posteriors.items() if isinstance(q, Shared)}
    tables = list({id(table): table for table in shared.values()}.values())
    number = {id(table): k for k, table in enumerate(tables)}
    return tables, {name: number[id(table)] for name, table in shared.items()}


def posteriors_in(file: Contents, header: Header) -> Iterator[tuple[str, Posterior]]:
    """Every posterior of a file, one by one, with the name of its parameter."""
    tables = [_table(file, number) for number in range(header.num_tables)]
    for name, family in header.posteriors.items():
        table = tables[header.tables[name]] if name in header.tables else None
        yield name, _posterior(file, name, FAMILIES[family], table)


def _table(file: Contents, number: int) -> Table:
    arrays = {name: file.take(f"table/{number}/{name}") for name in Table.array_names}
    try:
        return Table.from_arrays(arrays)
    except PocketBayesError as error:
        raise FormatError(f"section table/{number}: {error}") from error


def _posterior(file: Contents, name: str, kind: type[Posterior], table: Table | None) -> Posterior:
    arrays = {array: file.take(f"posterior/{name}/{array}") for array in kind.array_names}
    try:
        if issubclass(kind, Shared):
            return kind.from_arrays(arrays, table)
        return kind.from_arrays(arrays)
    except PocketBayesError as error:
        raise FormatError(f"section posterior/{name}: {error}") from error
