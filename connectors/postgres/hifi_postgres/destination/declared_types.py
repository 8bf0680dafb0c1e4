"""Changes of a table's columns to those that a pipe declares: added, or of a type with every value. Pure."""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from hifi.runtime.errors import Missing
from hifi_postgres.destination.column_type import ColumnType

_ALIASES: Final = {
    "int2": "smallint",
    "int": "integer",
    "int4": "integer",
    "int8": "bigint",
    "decimal": "numeric",
    "float4": "real",
    "float8": "double precision",
    "float": "double precision",
    "bool": "boolean",
    "varchar": "character varying",
    "char": "character",
    "bpchar": "character",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
    "time": "time without time zone",
    "timetz": "time with time zone",
    "varbit": "bit varying",
}
_WHOLE: Final = ("smallint", "integer", "bigint", "numeric")
_FLOATS: Final = ("real", "double precision")
_TEXTS: Final = ("character varying", "text")
_TYPE: Final = re.compile(
    r"^([a-z0-9_ ]+?) ?(?:\((\d+)(?:, ?(\d+))?\))?( (?:with|without) time zone)?(\[\])?$"
)


def alterations(
    table: str, types: Mapping[str, ColumnType], declared: Mapping[str, str]
) -> Iterator[tuple[str, str]]:
    """Names of columns to add or widen, and their types.

    Args:
        table: name, for messages.
        types: of the columns that the table has.
        declared: column to its type.

    Raises:
        Missing: a column has a type that cannot become the declared one with every value as it is.
    """
    for name, type_name in declared.items():
        if name not in types:
            yield name, type_name
            continue
        current_type = types[name].declared
        if same_type(current_type, type_name):
            continue
        if not widens(current_type, type_name):
            raise Missing(
                f"type {type_name} of the column {name} of the table {table}",
                f"the column {name} of the table {table} has the type {current_type}, which cannot become {type_name} "
                "with every value as it is; deliveries wait until you change the column, or `types` of the pipe",
            )
        yield name, type_name


def same_type(current: str, declared: str) -> bool:
    """Whether two names are of one type."""
    return _parse_type(current) == _parse_type(declared)


def widens(current: str, declared: str) -> bool:
    """Whether a type has every value of another one, as it is."""
    (old_name, *old_sizes, old_array), (new_name, *new_sizes, new_array) = (
        _parse_type(current),
        _parse_type(declared),
    )
    if old_array or new_array:
        return False
    for order in (_WHOLE, _FLOATS):
        if old_name in order and new_name in order and old_name != new_name:
            return order.index(new_name) > order.index(old_name) and old_sizes == new_sizes == [None, None]
    if old_name == "character varying" and new_name in _TEXTS:
        return new_sizes[0] is None or (old_sizes[0] is not None and new_sizes[0] > old_sizes[0])
    if old_name == new_name == "numeric" and old_sizes[0] is not None:
        old_scale, new_scale = old_sizes[1] or 0, new_sizes[1] or 0
        return new_sizes[0] is None or (
            new_scale >= old_scale and new_sizes[0] - new_scale >= old_sizes[0] - old_scale
        )
    return False


def _parse_type(name: str) -> tuple[str, int | None, int | None, bool]:
    """Plain name, sizes, and whether it is an array."""
    # PostgreSQL writes `timestamp(3) without time zone`.
    match = _TYPE.match(name.strip())
    if match is None:
        return name, None, None, False
    base_name = match[1].strip()
    zone_suffix = (match[4] or "").strip()
    full_name = f"{base_name} {zone_suffix}" if zone_suffix else _ALIASES.get(base_name, base_name)
    size, scale = (int(text) if text else None for text in (match[2], match[3]))
    if full_name == "character" and size is None:
        size = 1
    if full_name == "numeric" and size is not None and scale is None:
        scale = 0
    return full_name, size, scale, match[5] is not None
