"""Whether every value that a JSON Schema allows fits an Avro schema, as `encode` writes it. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import orjson

from hifi.avro.derive import derive
from hifi.avro.schema import AvroSchema, branch_name, definition, read_schema
from hifi.runtime.errors import Misconfigured

_MOST_PAIRS: Final = 100_000
_TEXTS: Final = {"string", "enum", "bytes", "fixed"}
_NUMBERS: Final = {
    "int": {"int", "long", "double"},
    "long": {"long", "double"},
    "double": {"double", "float"},
}
"""Derived type to the types that hold its values."""


def disagreements(json_schema: Any, name: str, declared: AvroSchema, *, drop_unknown: bool) -> list[str]:
    """Values that the JSON Schema allows and the Avro schema does not take, each with the field; empty: they agree.

    Constraints on texts are not compared: whether a text is a date or a symbol of an enum shows with each event.

    Args:
        json_schema: of the data.
        name: of the pipe.
        declared: the Avro schema.
        drop_unknown: whether fields that it does not have are left out.

    Raises:
        Misconfigured: the JSON Schema has a part without counterpart in Avro, or the schemas are too large.
    """
    derived = read_schema(orjson.dumps(derive(json_schema, name, narrow=True)))
    comparison = _Comparison(derived.names, declared.names, drop_unknown=drop_unknown)
    return list(comparison.problems(derived.parsed, declared.parsed, ""))


class _Comparison:
    """Compares the types of a derived and a declared schema."""

    def __init__(
        self, derived: Mapping[str, Any], declared: Mapping[str, Any], *, drop_unknown: bool
    ) -> None:
        self._derived = derived
        self._declared = declared
        self._drop_unknown = drop_unknown
        self._comparing: set[tuple[str, str]] = set()
        self._pairs = 0

    def problems(self, derived: Any, declared: Any, path: str) -> Iterator[str]:
        """The disagreements at a path."""
        self._pairs += 1
        if self._pairs > _MOST_PAIRS:
            raise Misconfigured(f"the schemas have more than {_MOST_PAIRS:,} pairs of types to compare")
        derived, declared = definition(derived, self._derived), definition(declared, self._declared)
        if isinstance(derived, list):
            for branch in derived:
                yield from self.problems(branch, declared, path)
        elif isinstance(declared, list):
            problems_by_branch = [list(self.problems(derived, branch, path)) for branch in declared]
            if all(problems_by_branch):
                nearest = [
                    problems
                    for branch, problems in zip(declared, problems_by_branch, strict=True)
                    if branch != "null"
                ]
                branch_names = ", ".join(branch_name(branch) for branch in declared)
                allowed = _json_type(derived)
                no_branch = (
                    f"{path or 'the data'}: the JSON Schema allows {allowed}, which is none of {branch_names}"
                )
                yield from (nearest[0] if len(nearest) == 1 and allowed != "null" else [no_branch])
        else:
            yield from self._single(derived, declared, path)

    def _single(self, derived: Mapping[str, Any], declared: Mapping[str, Any], path: str) -> Iterator[str]:
        kind, declared_type = derived["type"], declared["type"]
        if kind == "record" and declared_type in {"record", "error"}:
            pair = (derived["name"], declared["name"])
            if pair not in self._comparing:
                self._comparing.add(pair)
                yield from self._fields(derived["fields"], declared["fields"], path)
                self._comparing.discard(pair)
        elif kind == "record" and declared_type == "map":
            for field in derived["fields"]:
                yield from self.problems(field["type"], declared["values"], f"{path}/{field['name']}")
        elif kind == declared_type == "map":
            yield from self.problems(derived["values"], declared["values"], f"{path}/*")
        elif kind == declared_type == "array":
            yield from self.problems(derived["items"], declared["items"], f"{path}/*")
        elif not _holds(kind, declared):
            yield (
                f"{path or 'the data'}: the JSON Schema allows {_json_type(derived)}, which does not fit"
                f" {declared.get('logicalType', declared_type)}"
            )

    def _fields(
        self, derived: Sequence[Mapping[str, Any]], declared: Sequence[Mapping[str, Any]], path: str
    ) -> Iterator[str]:
        declared_fields = {field["name"]: field for field in declared}
        for field in derived:
            field_path, declared_field = f"{path}/{field['name']}", declared_fields.pop(field["name"], None)
            if declared_field is not None:
                optional = "default" in field and (
                    "default" in declared_field or _takes_null(declared_field["type"])
                )
                types = field["type"]
                if optional and isinstance(types, list) and not _takes_null(declared_field["type"]):
                    types = [
                        branch for branch in types if branch != "null"
                    ]  # it may be missing, but the default is there
                yield from self.problems(types, declared_field["type"], field_path)
            elif not self._drop_unknown:
                yield f"{field_path}: the JSON Schema has the field, and the Avro schema does not"
        for name, field in declared_fields.items():
            if "default" not in field and not _takes_null(field["type"]):
                yield f"{path}/{name}: the Avro schema needs the field, and the JSON Schema does not have it"


def _holds(kind: str, declared: Mapping[str, Any]) -> bool:
    """Whether a simple Avro type holds all values of a derived one; texts are taken at their word."""
    declared_type = declared["type"]
    if declared.get("logicalType") == "decimal":
        return kind in {"string", "enum", "int", "long", "double"}
    if kind in {"string", "enum"}:
        return declared_type in _TEXTS or "logicalType" in declared
    return declared_type == kind or (
        declared_type in _NUMBERS.get(kind, ()) and "logicalType" not in declared
    )


def _takes_null(node: Any) -> bool:
    return node == "null" or (isinstance(node, list) and "null" in node)


def _json_type(derived: Mapping[str, Any]) -> str:
    containers = {
        "record": "an object",
        "map": "an object",
        "array": "an array",
        "enum": "a text",
        "string": "a text",
    }
    values = {
        "int": "an integer",
        "long": "an integer",
        "double": "a number",
        "boolean": "a boolean",
        "null": "null",
    }
    return (containers | values)[derived["type"]]
