"""Whether data of one schema can be read with another one: schema resolution of the Avro specification 1.12. Pure.

As Avro's Java library and Confluent's registry do, named types match if their names without namespace are equal, or if
an alias of the reader's is the full name of the writer's. As the specification says, decimals match only if precision
and scale are equal.
"""

import contextlib
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Final

from hifi.avro.schema import AvroSchema, branch_name, definition

_PROMOTIONS: Final = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
"""Type of the writer to those that the reader may have instead."""
_MOST_PAIRS: Final = 100_000
_NAMED: Final = {"record", "error", "enum", "fixed"}


def incompatibilities(reader: AvroSchema, writer: AvroSchema) -> list[str]:
    """Why data of the writer's schema cannot be read with the reader's, each with the path; empty: it can be."""
    try:
        return list(_Resolution(reader.names, writer.names).problems(reader.parsed, writer.parsed, ""))
    except _TooManyPairs:
        return [f"the schemas have more than {_MOST_PAIRS:,} pairs of types to compare"]


class _TooManyPairs(Exception):
    """Records that are used in many places make more pairs than can be compared."""


class _Resolution:
    """Compares the types of two schemas."""

    def __init__(self, reader_names: Mapping[str, Any], writer_names: Mapping[str, Any]) -> None:
        self._reader_names = reader_names
        self._writer_names = writer_names
        self._comparing: set[tuple[str, str]] = set()
        self._pairs = 0

    def problems(self, reader: Any, writer: Any, path: str) -> Generator[str]:
        """The incompatibilities at a path."""
        self._pairs += 1
        if self._pairs > _MOST_PAIRS:
            raise _TooManyPairs
        reader, writer = definition(reader, self._reader_names), definition(writer, self._writer_names)
        if isinstance(writer, list):
            for branch in writer:
                yield from self.problems(reader, branch, path)
        elif isinstance(reader, list):
            if all(self._differ(branch, writer, path) for branch in reader):
                names = ", ".join(branch_name(branch) for branch in reader)
                yield f"{_location(path)}: {branch_name(writer)} is none of the reader's types {names}"
        else:
            yield from self._single(reader, writer, path)

    def _differ(self, reader: Any, writer: Any, path: str) -> bool:
        """Whether there is an incompatibility; the others are not looked for."""
        with contextlib.closing(self.problems(reader, writer, path)) as problems:
            return any(True for _ in problems)

    def _single(self, reader: Mapping[str, Any], writer: Mapping[str, Any], path: str) -> Iterator[str]:
        """Compare two types that are no unions."""
        kind, writer_type = reader["type"], writer["type"]
        if kind != writer_type and {kind, writer_type} != {"record", "error"}:
            if kind not in _PROMOTIONS.get(writer_type, ()):
                yield f"{_location(path)}: the writer's type {writer_type} cannot be read as {kind}"
        elif kind in _NAMED and not _same_name(reader, writer):
            yield f"{_location(path)}: the writer's {writer['name']} and the reader's {reader['name']} differ in name"
        elif kind in {"record", "error"}:
            pair = (reader["name"], writer["name"])
            if pair not in self._comparing:  # otherwise a caller of this method compares them
                self._comparing.add(pair)
                try:
                    yield from self._fields(reader, writer, path)
                finally:  # also where the first problem is enough
                    self._comparing.discard(pair)
        elif kind == "array":
            yield from self.problems(reader["items"], writer["items"], f"{path}/[]")
        elif kind == "map":
            yield from self.problems(reader["values"], writer["values"], f"{path}/{{}}")
        else:
            yield from _simple(reader, writer, path)

    def _fields(self, reader: Mapping[str, Any], writer: Mapping[str, Any], path: str) -> Iterator[str]:
        writer_fields = {field["name"]: field for field in writer["fields"]}
        for field in reader["fields"]:
            names = (field["name"], *field.get("aliases", ()))
            writer_field = next((writer_fields[name] for name in names if name in writer_fields), None)
            if writer_field is not None:
                yield from self.problems(field["type"], writer_field["type"], f"{path}/{field['name']}")
            elif "default" not in field:
                yield (
                    f"{_location(path + '/' + field['name'])}: the writer does not have the field, and the reader's has"
                    " no default"
                )


def _simple(reader: Mapping[str, Any], writer: Mapping[str, Any], path: str) -> Iterator[str]:
    """Compare two types of the same kind that have no types within."""
    if reader["type"] == "enum" and "default" not in reader:
        if missing_symbols := sorted(set(writer["symbols"]) - set(reader["symbols"])):
            yield f"{_location(path)}: the reader has no symbol {', '.join(missing_symbols)}, and no default symbol"
    elif reader["type"] == "fixed" and reader["size"] != writer["size"]:
        yield f"{_location(path)}: the writer's size is {writer['size']} and the reader's {reader['size']}"
    decimals = _decimal(reader), _decimal(writer)
    if None not in decimals and decimals[0] != decimals[1]:
        yield f"{_location(path)}: the decimals differ in precision or scale"


def _same_name(reader: Mapping[str, Any], writer: Mapping[str, Any]) -> bool:
    name = writer["name"]
    return _unqualified(reader["name"]) == _unqualified(name) or name in _aliases(reader)


def _aliases(named_type: Mapping[str, Any]) -> Iterator[str]:
    namespace = named_type["name"].rpartition(".")[0]
    for alias in named_type.get("aliases", ()):
        yield alias if "." in alias or not namespace else f"{namespace}.{alias}"


def _unqualified(name: str) -> str:
    return name.rpartition(".")[2]


def _decimal(node: Mapping[str, Any]) -> tuple[int, int] | None:
    return (node["precision"], node.get("scale", 0)) if node.get("logicalType") == "decimal" else None


def _location(path: str) -> str:
    return path or "the schema"
