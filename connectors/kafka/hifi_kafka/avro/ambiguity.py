"""Unions whose types JSON cannot tell apart. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final

from hifi.avro.schema import AvroSchema, branch_name, definition

_BASE64: Final = {"bytes", "fixed"}
_TEXT: Final = {"string", "enum", *_BASE64}


def ambiguous_unions(schema: AvroSchema) -> list[str]:
    """Each union with two types of which a JSON value may be either, with the field and both types."""
    return list(dict.fromkeys(_UnionSearch(schema.names).ambiguous(schema.parsed, "", ())))


class _UnionSearch:
    def __init__(self, names: Mapping[str, Any]) -> None:
        self._names = names

    def ambiguous(self, node: Any, path: str, enclosing: tuple[str, ...]) -> Iterator[str]:
        node = definition(node, self._names)
        if isinstance(node, list):
            yield from self._ambiguous_pairs(node, path)
            for branch in node:
                yield from self.ambiguous(branch, path, enclosing)
        elif node["type"] in {"record", "error"} and node["name"] not in enclosing:
            for field in node["fields"]:
                yield from self.ambiguous(
                    field["type"], f"{path}/{field['name']}", (*enclosing, node["name"])
                )
        elif node["type"] == "array":
            yield from self.ambiguous(node["items"], f"{path}/0", enclosing)
        elif node["type"] == "map":
            yield from self.ambiguous(node["values"], f"{path}/*", enclosing)

    def _ambiguous_pairs(self, branches: Sequence[Any], path: str) -> Iterator[str]:
        for first, second in combinations(branches, 2):
            if self._overlap(definition(first, self._names), definition(second, self._names)):
                branch_names = f"{branch_name(first)} and {branch_name(second)}"
                reason = f"a JSON value may be either of {branch_names}; keep one, or put them into fields"
                yield f"{path or 'the data'}: {reason}"

    def _overlap(self, first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
        kinds = {str(first["type"]), str(second["type"])}
        if kinds <= _TEXT:
            return bool(kinds & _BASE64)
        if "map" in kinds:
            return bool(kinds & {"record", "error"})
        if not kinds <= {"record", "error"}:
            return False
        return _required(first) <= _fields(second) and _required(second) <= _fields(first)


def _fields(record: Mapping[str, Any]) -> set[str]:
    return {field["name"] for field in record["fields"]}


def _required(record: Mapping[str, Any]) -> set[str]:
    """Fields that a JSON object of the record must have."""
    return {
        field["name"]
        for field in record["fields"]
        if "default" not in field and field["type"] != "null" and "null" not in field["type"]
    }
