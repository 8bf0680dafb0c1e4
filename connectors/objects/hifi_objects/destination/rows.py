"""The row of an event: the same columns in each format. Pure."""

import math
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, TypeAlias

from hifi.delivery.field_value import fields, value_at
from hifi.delivery.kind import OutboundEvent
from hifi.runtime.errors import Rejected
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
    """The time that is so many microseconds after 1970 UTC."""
    return _EPOCH + timedelta(microseconds=accepted_us)


def row(event: OutboundEvent, columns: Mapping[str, ObjectColumn]) -> Row:
    """The row of an event.

    Args:
        event: to write.
        columns: for values of the data; none: one for all of it.

    Raises:
        Rejected: the data is no JSON object, a value has another type than its column, or the position is unknown.
    """
    data = fields(event)
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
    if value is None or type(value) is _EXACT[column.type]:
        return value
    if type(value) is float and column.type == "double" and math.isfinite(value):
        return value
    if not _FITS[column.type](value):
        kind = {bool: "boolean", int: "integer", float: "number", str: "text"}.get(
            type(value), type(value).__name__
        )
        raise Rejected("value", f"the column {name} has the type {column.type}, and the value is a {kind}")
    return float(value) if column.type == "double" else value


def _is_double(value: Any) -> bool:
    return isinstance(value, float | int) and not isinstance(value, bool) and math.isfinite(value)


_EXACT: Final[Mapping[str, type | None]] = {
    "string": str,
    "long": None,  # it may be too large
    "double": None,  # it may be an integer
    "boolean": bool,
    "json": None,
}
_FITS: Final[Mapping[str, Callable[[Any], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "long": lambda value: (
        isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    ),
    "double": _is_double,
    "boolean": lambda value: isinstance(value, bool),
    "json": lambda _: True,
}
