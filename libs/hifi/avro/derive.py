"""The Avro schema of a JSON Schema. Pure.

Each value that the JSON Schema allows has to fit. Avro knows no more than types, so constraints such as `minimum` and
`pattern` are left out; what has no counterpart is an error. docs/avro.md has the table.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from hifi.runtime.errors import Misconfigured
from hifi.runtime.json_pointer import json_pointer

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PRIMITIVES: Final = {
    "null": "null",
    "boolean": "boolean",
    "integer": "long",
    "number": "double",
    "string": "string",
}
_INT: Final = "int"
_UNMAPPED: Final = (
    "allOf",
    "not",
    "if",
    "patternProperties",
    "prefixItems",
    "dependentSchemas",
    "unevaluatedProperties",
    "$dynamicRef",
)
"""Keywords that change which types are allowed in ways that Avro does not have."""
_MOST_TYPES: Final = 10_000


def derive(json_schema: Any, name: str, *, narrow: bool = False) -> dict[str, Any]:
    """The Avro schema of the data that a JSON Schema describes.

    Args:
        json_schema: of an object.
        name: of the record; what is no letter, digit or `_` becomes `_`.
        narrow: whether integers with bounds of 32 bits are `int`. Not for schemas that are registered: a change of the
            bounds would change the type.

    Raises:
        Misconfigured: a part has no counterpart in Avro; the message names it.
    """
    record_type = _Derivation(json_schema, _name(name), narrow=narrow).type_of(json_schema, (), _name(name))
    if not isinstance(record_type, dict) or record_type["type"] != "record":
        raise Misconfigured("the JSON Schema has no `properties`: an Avro record needs its fields")
    return {"namespace": "hifi", **record_type}


class _Derivation:
    """Maps the parts of one JSON Schema."""

    def __init__(self, root: Any, name: str, *, narrow: bool) -> None:
        self._root = root
        self._narrow = narrow
        self._names: set[str] = set()
        self._records = {"#": name}
        """Reference to the name of the record that it became."""
        self._resolving: set[str] = set()
        self._types = 0

    def type_of(self, node: Any, path: tuple[str, ...], name: str) -> Any:
        """The Avro type of a part.

        Args:
            node: of the JSON Schema.
            path: to it.
            name: of the record or enum, if it becomes one.
        """
        self._types += 1
        if self._types > _MOST_TYPES:
            raise _unmapped(path, "it is too large")
        if not isinstance(node, dict):
            raise _unmapped(path, "it allows any value; name its `type`")
        if unmapped_words := [word for word in _UNMAPPED if word in node]:
            raise _unmapped(path, f"Avro has no counterpart of `{unmapped_words[0]}`")
        if "$ref" in node:
            return self._reference(node["$ref"], path, name)
        for word in ("anyOf", "oneOf"):
            if word in node:
                branches = [
                    self.type_of(branch, (*path, word, str(number)), f"{name}_{number}")
                    for number, branch in enumerate(node[word])
                ]
                return _union(branches, path)
        allowed = _types(node, path)
        return _union([self._single(kind, node, path, name) for kind in allowed], path)

    def _single(self, kind: str, node: Mapping[str, Any], path: tuple[str, ...], name: str) -> Any:
        if kind == "object":
            return self._object(node, path, name)
        if kind == "array":
            if "items" not in node:
                raise _unmapped(path, "it is an array of any values; name the type of its `items`")
            items = self.type_of(node["items"], (*path, "items"), f"{name}_item")
            if items == "null":
                raise _unmapped(path, "it is an array of nulls")
            return {"type": "array", "items": items}
        if kind == "string" and _is_enum(node):
            symbols = [symbol for symbol in node["enum"] if isinstance(symbol, str)]
            return {"type": "enum", "name": self._new_name(name), "symbols": symbols}
        if kind == "integer" and self._narrow and _has_32_bits(node):
            return _INT
        return _PRIMITIVES[kind]

    def _object(self, node: Mapping[str, Any], path: tuple[str, ...], name: str) -> Any:
        properties, additional = node.get("properties"), node.get("additionalProperties")
        if not properties:
            if isinstance(additional, dict):
                values = self.type_of(additional, (*path, "additionalProperties"), f"{name}_value")
                return {"type": "map", "values": values}
            raise _unmapped(
                path, "it is an object of any fields; name its `properties`, or the type of all of them"
            )
        if isinstance(additional, dict):
            raise _unmapped(path, "Avro has no record with fields of other names: `additionalProperties`")
        record = {"type": "record", "name": self._new_name(name), "fields": []}
        fields: list[dict[str, Any]] = []
        required = set(node.get("required", ()))
        for field, property_schema in properties.items():
            property_path = (*path, "properties", field)
            if not _NAME.fullmatch(field):
                raise _unmapped(property_path, "the name of a field in Avro has letters, digits and _ only")
            field_type = self.type_of(property_schema, property_path, f"{name}_{field}")
            fields.append(
                {"name": field, **({"type": field_type} if field in required else _optional(field_type))}
            )
        if missing_names := sorted(required - properties.keys()):
            raise _unmapped(path, f"`required` names {missing_names[0]}, which `properties` does not have")
        return {**record, "fields": fields}

    def _reference(self, reference: Any, path: tuple[str, ...], name: str) -> Any:
        """A part of the same JSON Schema; a record has the name of its place, and is defined where it is used first."""
        reference = str(reference)
        if reference in self._records:
            return self._records[reference]
        node = self._root
        for token in reference.removeprefix("#").split("/")[1:]:
            key = token.replace("~1", "/").replace("~0", "~")
            node = node.get(key) if isinstance(node, dict) else None
        if not reference.startswith("#/") or node is None:
            raise _unmapped(path, f"`$ref` {reference} is no pointer within this JSON Schema")
        if reference in self._resolving:
            raise _unmapped(path, f"`$ref` {reference} contains itself, and is no object with `properties`")
        self._resolving.add(reference)
        if isinstance(node, dict) and node.get("properties"):
            name = self._records[reference] = self._free_name(_name(reference.rpartition("/")[2]))
        avro_type = self.type_of(node, path, name)
        if name not in self._names:
            self._records.pop(reference, None)
        self._resolving.discard(reference)
        return avro_type

    def _free_name(self, name: str) -> str:
        return name if name not in self._names else self._free_name(f"{name}_")

    def _new_name(self, name: str) -> str:
        free_name = self._free_name(name)
        self._names.add(free_name)
        return free_name


def _types(node: Mapping[str, Any], path: tuple[str, ...]) -> Sequence[str]:
    """The JSON types that a part allows."""
    if "type" in node:
        kinds = [node["type"]] if isinstance(node["type"], str) else list(node["type"])
        return [kind for kind in kinds if not (kind == "integer" and "number" in kinds)]
    values = node.get("enum", [node["const"]] if "const" in node else None)
    if values is not None:
        return list(dict.fromkeys(_type_of_value(value) for value in values))
    if "properties" in node:  # as many write it, though without `type` anything else is allowed, too
        return ["object"]
    raise _unmapped(path, "it allows any value; name its `type`")


def _type_of_value(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    if isinstance(value, int | float):
        return "integer" if isinstance(value, int) else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def _has_32_bits(node: Mapping[str, Any]) -> bool:
    values = node.get("enum", [node["const"]] if "const" in node else None)
    if values is None:
        values = [node.get("minimum"), node.get("maximum")]
    return all(isinstance(value, int) and -(2**31) <= value < 2**31 for value in values)


def _is_enum(node: Mapping[str, Any]) -> bool:
    """Whether the texts of an `enum` are symbols in Avro."""
    symbols = [text for text in node.get("enum", ()) if isinstance(text, str)]
    return bool(symbols) and len(set(symbols)) == len(symbols) and all(map(_NAME.fullmatch, symbols))


def _union(branches: Sequence[Any], path: tuple[str, ...]) -> Any:
    flat: list[Any] = []
    for branch in branches:
        flat += [
            member for member in (branch if isinstance(branch, list) else [branch]) if member not in flat
        ]
    kinds = ["map" if _kind(member) == "record" else _kind(member) for member in flat]
    kinds = ["string" if kind == "enum" else kind for kind in kinds]
    if len(set(kinds)) < len(kinds):
        raise _unmapped(path, "it allows several objects, arrays or texts, which JSON does not tell apart")
    if len(flat) == 1:
        return flat[0]
    return sorted(flat, key=lambda member: member != "null")  # null comes first, for the default


def _kind(node: Any) -> str:
    if isinstance(node, str):
        return node if node in _PRIMITIVES.values() or node == _INT else "record"
    return str(node["type"])


def _optional(avro_type: Any) -> dict[str, Any]:
    """Type and default of a field that may be missing."""
    branches = avro_type if isinstance(avro_type, list) else [avro_type]
    if branches == ["null"]:
        return {"type": "null", "default": None}
    return {"type": [*(["null"] if "null" not in branches else []), *branches], "default": None}


def _name(text: str) -> str:
    name = re.sub(r"[^A-Za-z0-9_]", "_", text)
    return name if _NAME.fullmatch(name) else f"_{name}"


def _unmapped(path: Sequence[str], reason: str) -> Misconfigured:
    return Misconfigured(
        f"the JSON Schema at {json_pointer(path) or 'its root'} cannot become Avro: {reason}"
    )
