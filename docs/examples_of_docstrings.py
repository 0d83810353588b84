"""For mkdocstrings: `Example:` in a docstring is a section of code, as `Examples:` is."""

from typing import Any

import griffe


class Examples(griffe.Extension):
    """Makes sections of doctests out of what would else be text."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Follows the reading of each module, class, function and attribute."""
        if obj.docstring:
            obj.docstring.value = obj.docstring.value.replace("Example:\n", "Examples:\n")
