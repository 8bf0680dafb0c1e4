"""Values of logical types that fastavro reads as other values: with every digit, or as an error. Pure.

fastavro rounds a decimal to the precision of its schema, which many writers do not keep to, takes a time of day before
midnight for another one, and a UUID in another form as its own. Its readers, compiled or not, use the ones of this
module once it is imported.
"""

from datetime import time
from decimal import MAX_PREC, Context, Decimal
from typing import Any, Final

import fastavro

_EXACT: Final = Context(prec=MAX_PREC)
_MOST_BYTES: Final = 2048
"""Of a decimal: 4,900 digits. The time in which one is read grows with the square of its size."""
_MOST_SCALE: Final = 5_000
"""Digits behind the point. They are written all, also if they are zeros."""
_DAY_US: Final = 86_400_000_000


def read_decimal(data: bytes, writer_schema: dict[Any, Any] | None, _: Any = None) -> Decimal:
    """A decimal with the scale of its schema, and all digits.

    Raises:
        ValueError: it has more than 2,048 bytes, or a scale above 5,000.
    """
    scale = (writer_schema or {}).get("scale", 0)
    if len(data) > _MOST_BYTES or scale > _MOST_SCALE:
        raise ValueError(f"the decimal has {len(data)} bytes and the scale {scale}")
    return Decimal(int.from_bytes(data, "big", signed=True)).scaleb(-scale, _EXACT)


def read_time_millis(data: int, _: Any = None, __: Any = None) -> time:
    """A time of day.

    Raises:
        ValueError: it is not within a day.
    """
    return read_time_micros(1000 * data)


def read_time_micros(data: int, _: Any = None, __: Any = None) -> time:
    """A time of day.

    Raises:
        ValueError: it is not within a day.
    """
    if not 0 <= data < _DAY_US:
        raise ValueError("the time of day is not within a day")
    seconds, microsecond = divmod(data, 1_000_000)
    return time(seconds // 3600, seconds // 60 % 60, seconds % 60, microsecond)


def read_text_uuid(data: str, _: Any = None, __: Any = None) -> str:
    """The text, in the form in which it was written; as in other readers it may be no UUID."""
    return data


fastavro.read.LOGICAL_READERS.update(
    {
        "bytes-decimal": read_decimal,
        "fixed-decimal": read_decimal,
        "int-time-millis": read_time_millis,
        "long-time-micros": read_time_micros,
        "string-uuid": read_text_uuid,
    }
)
