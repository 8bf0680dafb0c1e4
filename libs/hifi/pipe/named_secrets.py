"""Finds the secrets that a pipe, or a part of it, names."""

import contextlib
from collections.abc import Iterator
from typing import Any, Final, TypeAlias

from pydantic import BaseModel, ValidationError

from hifi.pipe.model import ConnectorDestination, UnreadableDestination
from hifi.pipe.secret import Secret
from hifi.pipe.source import UnreadableSource

YamlPath: TypeAlias = tuple[str | int, ...]
_NAMED_BY_AUTHORS: Final = {"attributes", "avro_schema", "columns", "delete_when", "headers", "types"}
"""Settings that are maps with names which the author chooses, such as the column `file`: they are no references."""


def secrets(node: Any, path: YamlPath = ()) -> Iterator[tuple[YamlPath, Secret]]:
    """Path in the YAML and reference of each secret that a pipe or a part of it names."""
    if isinstance(node, Secret):
        yield path, node
    elif isinstance(node, ConnectorDestination):
        yield from _references(node.settings, (*path, "settings"))
    elif isinstance(node, UnreadableSource | UnreadableDestination):
        yield from _references(node.model_extra, path)
    elif isinstance(node, BaseModel):
        for name, field in type(node).model_fields.items():
            yield from secrets(getattr(node, name), (*path, field.alias or name))
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from secrets(value, (*path, key))
    elif isinstance(node, list | tuple):
        for index, value in enumerate(node):
            yield from secrets(value, (*path, index))


def _references(node: Any, path: YamlPath) -> Iterator[tuple[YamlPath, Secret]]:
    """The maps of `env`, `file` or `vault`, and perhaps `prefix`: this process may lack the class that reads them."""
    if isinstance(node, dict):
        # A null counts as absent, as it does for `Secret`.
        reference = {name: value for name, value in node.items() if name != "prefix" and value is not None}
        name, value = next(iter(reference.items()), ("", None))
        is_reference = len(reference) == 1 and name in ("env", "file", "vault") and isinstance(value, str)
        if is_reference and path[-1] not in _NAMED_BY_AUTHORS:
            with contextlib.suppress(ValidationError):  # what reads it refuses it, too
                yield path, Secret.model_validate(reference)
        for key, value in node.items():
            yield from _references(value, (*path, key))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _references(value, (*path, index))
