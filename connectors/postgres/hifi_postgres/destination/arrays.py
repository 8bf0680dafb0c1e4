"""The values of a column for many rows as one array of PostgreSQL. Pure.

Each value is converted as it would be as a parameter of its own: a text by the input function of its column's type, a
number or a truth value by the assignment to the column.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson
from psycopg.types.json import Jsonb

_LONG: Final = range(-(2**63), 2**63)
_EXACT: Final = range(-(2**53), 2**53 + 1)
"""Integers that `double precision` has exactly."""
_FLOATING: Final = frozenset({"double precision", "real", "numeric"})
"""Types of columns for which an integer and the equal `double precision` are the same."""


class Array(NamedTuple):
    """An array.

    Attributes:
        text: as PostgreSQL reads it.
        type: SQL of the type of its elements.
    """

    text: str
    type: str


def array(values: Sequence[Any], column_type: str) -> Array | None:
    """The array of some values: null, text, numbers, truth values, `Jsonb`.

    Args:
        values: of a column.
        column_type: SQL of the column's type; empty: unknown.

    Returns:
        None if they have no common type, or the column has arrays itself.
    """
    if not column_type or column_type.endswith("[]"):
        return None
    kinds = frozenset(map(type, values)) - {type(None)}
    if kinds <= {str}:
        element_type = column_type
    elif kinds <= {int, float}:
        element_type = _number_type([value for value in values if type(value) is int], kinds, column_type)
    else:
        element_type = _TYPES.get(kinds, "")
    if not element_type:
        return None
    return Array("{" + ",".join([_TEXTS[type(value)](value) for value in values]) + "}", element_type)


def _number_type(integers: Sequence[int], kinds: frozenset[type], column_type: str) -> str:
    """The type of an array of numbers; empty: there is none that keeps the integers among them."""
    if float not in kinds:
        exact, number_type = _LONG, "bigint"
    elif not integers or column_type in _FLOATING:
        exact, number_type = _EXACT, "double precision"
    else:
        return ""
    inside = not integers or (min(integers) in exact and max(integers) in exact)
    return number_type if inside else ""


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _json(value: Jsonb) -> str:
    return _quoted(orjson.dumps(value.obj).decode())


def _null(_: None) -> str:
    return "NULL"


_TYPES: Final[Mapping[frozenset[type], str]] = {frozenset({bool}): "boolean", frozenset({Jsonb}): "jsonb"}
_TEXTS: Final[Mapping[type, Callable[[Any], str]]] = {
    str: _quoted,
    int: repr,
    float: repr,
    bool: repr,
    Jsonb: _json,
    type(None): _null,
}
