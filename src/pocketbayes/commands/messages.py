"""What the command line says of errors and warnings: words, without lines of code."""

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pocketbayes.codec import FileSummary
from pocketbayes.commands.flags import UsageError
from pocketbayes.errors import PocketBayesError, printable
from pocketbayes.layers import comparison_in_words


@contextmanager
def plain_messages() -> Iterator[None]:
    """Errors become a message on stderr and an exit code, warnings a line."""
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _show_warning
            yield
    except UsageError as error:
        print(f"usage error: {_lines(error)}", file=sys.stderr)
        sys.exit(2)
    except (PocketBayesError, OSError) as error:
        print(f"error: {_lines(error)}", file=sys.stderr)
        sys.exit(1)


def note_compared(file: FileSummary) -> dict[str, Any]:
    """Says in one line how near one pass came to draws; the same as part of a report."""
    compared = (file.one_pass or {}).get("compared")
    if compared is None:
        return {}
    print(comparison_in_words(compared), file=sys.stderr)
    return {"compared": compared}


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Without the line of code: whoever types commands has none."""
    print(f"warning: {_lines(message)}", file=sys.stderr)


def _lines(error: Exception | str) -> str:
    """The message; names in it may hold anything."""
    return "\n".join(map(printable, str(error).split("\n")))
