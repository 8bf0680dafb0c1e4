"""Avro schemas: read, checked and compiled for fastavro. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import fastavro
import orjson
from fastavro.schema import SchemaParseException, UnknownType
from fastavro.types import Schema

PRIMITIVES: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_SHOWN: Final = 80
"""Most characters of a name in a message."""
_MAX_DEPTH: Final = 64
"""fastavro reads schemas and values recursively, without a limit of its own."""
_MOST_FREE: Final = 100
"""Values without bytes in a value: each of 30 records could have the next one twice."""


class InvalidSchema(ValueError):
    """The text is not an Avro schema that can be used; the message says why."""


class DuplicateField(InvalidSchema):
    """A record of the schema has a field twice, of which a reader would keep one value."""


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema that was checked.

    Attributes:
        tree: the schema as JSON, as it was written.
        parsed: the same for fastavro: names are full, and references are resolved.
        names: full name to definition, of all that it defines and refers to.
        recursive: a type of it contains itself, so that a value may be nested without bound.
    """

    tree: Any
    parsed: Schema
    names: Mapping[str, Any]
    recursive: bool


def read_schema(text: str | bytes, references: Sequence[str | bytes] = ()) -> AvroSchema:
    """Read a schema in JSON.

    Args:
        text: of the schema.
        references: texts of the schemas whose names it uses; each may use names of those before it.

    Raises:
        InvalidSchema: one of them is not valid, or cannot be read safely.
    """
    definitions: dict[str, Any] = {}
    for reference in references:
        _parse(_tree(reference), definitions)
    tree = _tree(text)
    parsed = _parse(tree, definitions)
    walk = _Walk(definitions)
    try:
        walk.min_size(parsed, ())
    except (KeyError, TypeError) as error:
        raise InvalidSchema(f"not an Avro schema ({type(error).__name__}: {error})") from None
    except RecursionError:
        raise InvalidSchema("its named types contain each other in too many levels") from None
    return AvroSchema(tree, parsed, definitions, walk.recursive)


def _tree(text: str | bytes) -> Any:
    try:
        tree = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if isinstance(text, str) and text in PRIMITIVES:  # as older clients write it
            return text
        raise InvalidSchema(f"the schema is not JSON: {error}") from None
    if not isinstance(tree, str | dict | list):
        raise InvalidSchema("a schema is a JSON string, object or array")
    if _depth(tree) > _MAX_DEPTH:
        raise InvalidSchema(f"the schema is nested more than {_MAX_DEPTH} levels deep")
    return tree


def _depth(tree: Any) -> int:
    """How deep objects and arrays are nested.

    Raises:
        InvalidSchema: a record has no fields, which fastavro takes for an empty list.
    """
    depth, level = 0, [tree]
    while level := [child for node in level for child in _children(node)]:
        depth += 1
    return depth


def _children(node: Any) -> list[Any]:
    if isinstance(node, list):
        return node
    if not isinstance(node, dict):
        return []
    if node.get("type") in ("record", "error") and not isinstance(node.get("fields"), list):
        raise InvalidSchema(f"the record {node.get('name')} has no list of fields")
    return [child for name, child in node.items() if name != "default"]


def _parse(tree: Any, names: dict[str, Any]) -> Schema:
    try:
        return fastavro.parse_schema(tree, named_schemas=names, expand=False)
    except UnknownType as error:
        raise InvalidSchema(f"the type {error.name} is not defined") from None
    except SchemaParseException as error:
        raise InvalidSchema(str(error)) from None
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidSchema(f"not an Avro schema ({type(error).__name__}: {error})") from None


class _Walk:
    """Checks what fastavro does not, and finds out whether a schema is recursive."""

    def __init__(self, names: Mapping[str, Any]) -> None:
        self.recursive = False
        self._names = names
        self._sizes: dict[str, int] = {}
        self._free: dict[str, int] = {}
        """Values without bytes in a value of a record, itself included, but for those in arrays, maps and unions."""

    def min_size(self, node: Any, enclosing: tuple[str, ...]) -> int:
        """0 if values of the type may take no bytes, else 1.

        Args:
            node: of the parsed schema.
            enclosing: full names of the records around it.

        Raises:
            InvalidSchema: it is not valid, or it has an array of items without bytes, or too many values without: few
                bytes could stand for any number of them.
        """
        if isinstance(node, str):
            return int(node != "null") if node in PRIMITIVES else self._named(node, enclosing)
        if isinstance(node, list):
            self._check_union(node, enclosing)
            return 1
        return self._complex(node["type"], node, enclosing)

    def _complex(self, kind: Any, node: Mapping[str, Any], enclosing: tuple[str, ...]) -> int:
        if kind in {"record", "error"}:
            return self._named(node["name"], enclosing, node)
        if kind in {"fixed", "enum"}:
            return _min_size_of_named(node)
        if kind == "array" and not self.min_size(node["items"], enclosing):
            raise InvalidSchema("it has an array of items without bytes, such as null")
        if kind == "map":
            self.min_size(node["values"], enclosing)
        return 1 if kind in {"array", "map"} else self.min_size(kind, enclosing)

    def _named(self, name: str, enclosing: tuple[str, ...], node: Any = None) -> int:
        if name in enclosing:
            self.recursive = True
            return 1  # without anything in between, no value of it would end
        if name not in self._sizes:
            named_type = self._names[name] if node is None else node
            if named_type["type"] not in {"record", "error"}:
                return self.min_size(named_type, enclosing)
            _check_name(name)
            _check_fields(name, named_type["fields"])
            self._sizes[name] = max(
                (self.min_size(field["type"], (*enclosing, name)) for field in named_type["fields"]),
                default=0,
            )
            free = sum(self._free_values(field["type"]) for field in named_type["fields"])
            self._free[name] = free + (self._sizes[name] == 0)
            if self._free[name] > _MOST_FREE:
                raise InvalidSchema(f"{name} has more than {_MOST_FREE} values without bytes, such as null")
        return self._sizes[name]

    def _free_values(self, node: Any) -> int:
        if isinstance(node, str):
            return int(node == "null") if node in PRIMITIVES else self._free.get(node, 0)
        if isinstance(node, list) or node["type"] in ("array", "map", "enum"):
            return 0
        if node["type"] == "fixed":
            return int(node["size"] == 0)
        return self._free.get(node["name"], 0) if "name" in node else self._free_values(node["type"])

    def _check_union(self, branches: Sequence[Any], enclosing: tuple[str, ...]) -> None:
        branch_names = [branch_name(branch) for branch in branches]
        if "union" in branch_names:
            raise InvalidSchema("a union is directly within a union")
        if repeated := sorted({name for name in branch_names if branch_names.count(name) > 1}):
            raise InvalidSchema(f"a union has {', '.join(repeated)} more than once")
        for branch in branches:
            self.min_size(branch, enclosing)


def branch_name(node: Any) -> str:
    """The name that distinguishes a branch of a union: the full name of a named type, or the type."""
    if isinstance(node, list):
        return "union"
    if isinstance(node, str):
        return node
    return (
        str(node["name"])
        if node["type"] in {"record", "error", "enum", "fixed"}
        else branch_name(node["type"])
    )


def definition(node: Any, names: Mapping[str, Any]) -> Any:
    """A type as a union, or as an object whose `type` is no further type.

    Args:
        node: of a parsed schema.
        names: full name to definition.
    """
    if isinstance(node, list):
        return node
    if isinstance(node, str):
        return names.get(node, {"type": node})
    kind = node["type"]
    return node if isinstance(kind, str) and kind not in names else definition(kind, names)


def _min_size_of_named(node: Mapping[str, Any]) -> int:
    _check_name(node["name"])
    if node["type"] == "enum":
        for symbol in node["symbols"]:
            _check_name(symbol)
        return 1
    if not isinstance(node["size"], int) or node["size"] < 0:
        raise InvalidSchema(f"the size of {node['name']} is not a number of bytes")
    return int(node["size"] > 0)


def _check_fields(record: str, fields: Sequence[Any]) -> None:
    field_names = set[str]()
    for field in fields:
        _check_name(field["name"])
        if field["name"] in field_names:
            column = f"the column {field['name'][:_SHOWN]!r} of {record[:_SHOWN]}"
            raise DuplicateField(f"the schema names {column} twice")
        field_names.add(field["name"])


def _check_name(name: Any) -> None:
    if not isinstance(name, str) or _NAME.fullmatch(name) is None:
        raise InvalidSchema(
            f"{name!r} is not a name in Avro: letters, digits and _, not beginning with a digit"
        )
