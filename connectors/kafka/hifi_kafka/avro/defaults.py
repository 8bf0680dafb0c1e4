"""The values that the fields of a schema have as defaults. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from hifi.avro.schema import branch_name

_BINARY: Final = frozenset({"bytes", "fixed"})


class InvalidDefault(ValueError):
    """A schema has a default that is none of its type."""


def default_value(node: Any, value: Any, names: Mapping[str, Any]) -> Any:
    """The value of a default, as fastavro writes it.

    Args:
        node: type of the field.
        value: the default, in which bytes are a text of ISO 8859-1; that of a union is of its first type.
        names: full name to definition of the types that have one.

    Raises:
        InvalidDefault: it has bytes, items or fields where the type has others.
        RecursionError: a type contains itself by its defaults.
    """
    if isinstance(node, list):
        return _of_union(node[0], value, names)
    if isinstance(node, str):
        return default_value(names[node], value, names) if node in names else _without_parts(node, value)
    kind = node["type"]
    if kind in ("array", "map", "record", "error"):
        try:
            return _of_parts(kind, node, value, names)
        except (AttributeError, TypeError):
            raise InvalidDefault(f"the default of the schema is no {kind}") from None
    return (
        _without_parts(kind, value)
        if kind in _BINARY or kind == "enum"
        else default_value(kind, value, names)
    )


def _of_union(first: Any, value: Any, names: Mapping[str, Any]) -> Any:
    """The value of a union, with the name of its first type if it is of that and holds bytes."""
    if value is None or first == "null":
        return value
    try:
        converted = default_value(first, value, names)
    except InvalidDefault:  # schemas exist whose default is of another type
        return value
    return value if converted == value else (branch_name(first), converted)


def _of_parts(kind: str, node: Mapping[str, Any], value: Any, names: Mapping[str, Any]) -> Any:
    if kind == "array":
        return [default_value(node["items"], item, names) for item in value]
    if kind == "map":
        return {name: default_value(node["values"], item, names) for name, item in value.items()}
    return {
        field["name"]: default_value(field["type"], value.get(field["name"], field.get("default")), names)
        for field in node["fields"]
    }


def _without_parts(kind: str, value: Any) -> Any:
    if kind not in _BINARY:
        return value
    try:
        return value.encode("latin-1")
    except (AttributeError, UnicodeEncodeError):
        raise InvalidDefault(f"the default of the schema is no {kind}") from None
