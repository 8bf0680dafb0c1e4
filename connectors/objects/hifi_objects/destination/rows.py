"""The row of an event: the same columns in each format. Pure."""

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final, TypeAlias

from hifi.delivery.field_value import exact_fields, value_at
from hifi.delivery.kind import OutboundEvent
from hifi.runtime.errors import Rejected
from hifi.runtime.floating_point import changes_whole, nearest
from hifi_objects.declaration import ObjectColumn

LOG: Final = "hifi_log"
PARTITION: Final = "hifi_partition"
OFFSET: Final = "hifi_offset"
ACCEPTED: Final = "hifi_accepted"
ATTRIBUTES: Final = ("id", "source", "type", "subject", "time")
"""CloudEvents attributes that are columns."""
_ATTRIBUTE_COLUMNS: Final = [(f"ce_{name}", name) for name in ATTRIBUTES]
DATA: Final = {"data": ObjectColumn(path="data", type="json")}
"""The columns for the data if none are declared."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


Row: TypeAlias = dict[str, Any]
"""Values by column, in the order of the columns. `OFFSET` is the position of the event in the topic `raw`."""


@lru_cache(maxsize=1024)  # the events of a request share their accepted time
def accepted_time(accepted_us: int) -> datetime:
    """The time of a number of microseconds since 1970 UTC."""
    return _EPOCH + timedelta(microseconds=accepted_us)


def row(event: OutboundEvent, columns: Mapping[str, ObjectColumn]) -> Row:
    """The row of an event.

    Args:
        event: to write.
        columns: for values of the data; none: one for all of it.

    Raises:
        Rejected: the data is no JSON object, a value has another type than its column, or the position is unknown.
    """
    data = exact_fields(event)
    values: Row = {
        LOG: event.log,
        PARTITION: event.partition,
        OFFSET: event.offset,
        ACCEPTED: accepted_time(event.accepted_us),
    }
    attributes = event.attributes
    for column_name, name in _ATTRIBUTE_COLUMNS:
        values[column_name] = attributes.get(name)
    if columns:
        for name, column in columns.items():
            values[name] = _value(name, column, value_at(data, column.path))
    else:
        values["data"] = data
    return values


def _value(name: str, column: ObjectColumn, value: Any) -> Any:
    if value is None or type(value) is _EXACT[column.type] or _FITS[column.type](value):
        return value
    kind = {bool: "boolean", int: "integer", Decimal: "number", str: "text"}.get(
        type(value), type(value).__name__
    )
    loss = (
        " with more digits than it has" if column.type == "double" and kind in {"integer", "number"} else ""
    )
    raise Rejected("value", f"the column {name} has the type {column.type}, and the value is a {kind}{loss}")


def _is_long(value: Any) -> bool:
    if isinstance(value, Decimal):
        # Without arithmetic, which has no result for 1e9999999.
        return -_LONG <= value < _LONG and value == value.to_integral_value()
    return isinstance(value, int) and not isinstance(value, bool) and -_LONG <= value < _LONG


def _is_double(value: Any) -> bool:
    """Whether a double has the number, or of one that is written with a fraction or an exponent, is near."""
    if isinstance(value, str):
        return value in NON_FINITE
    if not isinstance(value, int | Decimal) or isinstance(value, bool):
        return False
    number = nearest(value, 64)
    return math.isfinite(number) and not changes_whole(value, number)


_LONG: Final = 2**63
NON_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})
"""Texts that stand for the numbers that JSON does not have."""
_EXACT: Final[Mapping[str, type | None]] = {
    "string": str,
    "long": None,  # it may be too large
    "double": None,  # it may have more digits
    "boolean": bool,
    "json": None,
}
_FITS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "long": _is_long,
    "double": _is_double,
    "boolean": lambda value: isinstance(value, bool),
    "json": lambda _: True,
}
