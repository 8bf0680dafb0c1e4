"""Positions and times of rows, from the value of the column by which they are read. Pure.

The position of a row is its value as an integer, or the position before it plus 1 if that is higher. So positions rise
although rows may have equal values, and where values are unique a position depends on nothing but the row.
"""

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from hifi.runtime.errors import Misconfigured

ZERO: Final = 2**63
"""Position of the value 0: positions are not negative, while values from -2**63 on may be."""
_MOST: Final = 2**64 - 1
"""Highest position, which is that of the largest bigint."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


def time_us(value: str) -> int | None:
    """A time as PostgreSQL writes it, microseconds since 1970 UTC; None: it is none, or outside of years 1 to 9999."""
    if " " not in value:
        return None
    with contextlib.suppress(ValueError):
        parsed_time = datetime.fromisoformat(value)
        zoned_time = parsed_time if parsed_time.tzinfo else parsed_time.replace(tzinfo=UTC)
        return (zoned_time - _EPOCH) // _MICROSECOND
    return None


def rfc3339(time_us: int) -> str:
    """A time, microseconds since 1970 UTC, as RFC 3339."""
    return (_EPOCH + timedelta(microseconds=time_us)).isoformat(timespec="microseconds")[:-6] + "Z"


def value_of(text: str) -> int:
    """The value of a column as an integer, in the order of the values; 0 for a time that is not representable."""
    moment_us = time_us(text)
    if moment_us is not None:
        return moment_us + ZERO
    try:
        return int(text) + ZERO
    except ValueError:
        return 0


def positions(values: Iterable[str], last_position: int) -> Iterator[int]:
    """The positions of rows.

    Args:
        values: of the column, in the order of the rows.
        last_position: position of the row before them; -1: there is none.

    Raises:
        Misconfigured: the position of a row would be above 2**64 - 1.
    """
    for value in values:
        last_position = max(value_of(value), last_position + 1)
        if last_position > _MOST:
            raise Misconfigured(
                f"a row with {value} in `column` cannot be read: an earlier row has the same value or one close to it, "
                "and there is no position behind that of the largest bigint. Lower the value in such rows, or name "
                "another `column`"
            )
        yield last_position


def positioned(values: Sequence[str], last: int) -> int:
    """How many of some rows have positions, counted from the first one.

    Args:
        values: of the column, at least one, in the order of the rows.
        last: as for `positions`.
    """
    if max(value_of(values[-1]), last) + len(values) <= _MOST:
        return len(values)
    count = 0
    with contextlib.suppress(Misconfigured):
        for _ in positions(values, last):
            count += 1
    return count
