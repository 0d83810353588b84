"""Files that also carry their network as a program, where that is possible and costs little."""

import sys
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from pocketbayes.codec import FileSummary, save
from pocketbayes.errors import ProgramError, printable

_MOST_BYTES, _MOST_SHARE = 2048, 0.01  # that a program may add


def saved_portably(model: nn.Module, path: Path, example: Tensor, **options: Any) -> FileSummary:
    """Writes the model, with its program if it has one that is small; else says why not."""
    try:
        size = save(model, path, example=example, **options)
    except ProgramError as error:
        print(f"the file needs torch to be read: {printable(str(error))}", file=sys.stderr)
        return save(model, path, **options)
    assert size.program is not None
    if size.program["bytes"] > max(_MOST_BYTES, _MOST_SHARE * size.bytes):
        return save(model, path, **options)
    return size
