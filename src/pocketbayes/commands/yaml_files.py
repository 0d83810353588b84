"""YAML as this library reads it: plain values, each name once, nothing that grows when read."""

from collections.abc import Hashable
from typing import IO, Any

import yaml

_MOST_BYTES = 1 << 20


class YamlError(Exception):
    """A file is not YAML, or holds what a config never holds."""


class _StrictLoader(yaml.SafeLoader):
    """YAML's safe loader without aliases; a name given twice is an error and not the last one."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """No alias: a few nested ones make a value of billions of parts."""
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias (*name) is not allowed: write the value out")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """A mapping whose keys differ."""
        seen = set()
        for node_of_key, _ in node.value:
            key = self.construct_object(node_of_key, deep=True)
            if not isinstance(key, Hashable):
                break  # an error by what is called next
            if key in seen:
                raise yaml.YAMLError(f"{key!r} is given twice")
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_yaml(file: IO[bytes]) -> Any:
    """What a file says.

    Raises:
        OSError: it cannot be read.
        YamlError: it is no YAML, or not of the kind that configs are.
    """
    data = file.read(_MOST_BYTES + 1)
    if len(data) > _MOST_BYTES:
        raise YamlError(f"it is larger than {_MOST_BYTES:,} bytes")
    try:
        return yaml.load(data.decode(), _StrictLoader)
    except RecursionError as error:
        raise YamlError("it is nested too deeply") from error
    except (yaml.YAMLError, ValueError) as error:  # dates and numbers of strange values as well
        raise YamlError(str(error)) from error
