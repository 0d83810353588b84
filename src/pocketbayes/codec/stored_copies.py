"""Copies of models as their files would give them back."""

import copy
import tempfile
from pathlib import Path
from typing import Any

from torch import nn

from pocketbayes.codec.container import opened
from pocketbayes.codec.contents import contents_of
from pocketbayes.codec.files import save
from pocketbayes.codec.header import header_of
from pocketbayes.codec.sections import posteriors_in
from pocketbayes.codec.state import replace_state_
from pocketbayes.layers import (
    bayesian_modules,
    has_stale_head,
    head_knows_weights,
    named_posteriors,
    posteriors_of,
    set_head,
    unwrapped,
)


def as_stored(model: nn.Module, path: Path | None = None, **options: Any) -> tuple[nn.Module, int]:
    """A copy of the model as its file, written with these options, would give it; and its bytes.

    Unlike `load` it needs no plain network. The file stays, if there is a path for it.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = path or Path(folder) / "model.pocket"
        size = save(model, path, **options).bytes
        found = copy.deepcopy(unwrapped(model)).cpu()
        if has_stale_head(model):
            set_head(found, None)
        old = {id(posterior): name for name, posterior in named_posteriors(found)}
        with opened(path) as file:
            contents = contents_of(file)
            header = header_of(contents)
            new = dict(posteriors_in(contents, header))
            for _, module in bayesian_modules(found):
                for key, posterior in posteriors_of(module).by_name().items():
                    posteriors_of(module)[key] = new[old[id(posterior)]]
            head_knows_weights(found)  # else it is stale, and no part of the state
            replace_state_(found, header.state, lambda name: contents.take(f"state/{name}"))
    head_knows_weights(found)
    return found.eval(), size
