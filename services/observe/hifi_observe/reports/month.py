"""A month in UTC, as far as it has passed. Pure."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, slots=True)
class Month:
    """A month. Minutes are counted from 1970 UTC."""

    name: str
    """Such as `2026-10`."""
    first: int
    """Its first minute."""
    end: int
    """The minute after its last one."""
    passed_end: int
    """The minute after the last one that had passed when the report was made; `end` once the month has ended."""

    @property
    def partial(self) -> bool:
        """Whether it had not ended."""
        return self.passed_end < self.end


def month_of(name: str, now_minute: int) -> Month:
    """A month such as `2026-10`.

    Args:
        name: year and month.
        now_minute: the minute that is passing, which is not part of a report.

    Raises:
        ValueError: it is no month, or has not begun.
    """
    if re.fullmatch(r"[0-9]{4}-(0[1-9]|1[0-2])", name, re.ASCII) is None or name < "1970":
        raise ValueError(f"{name!r} is not a month such as 2026-10")
    year, number = int(name[:4]), int(name[5:])
    first_minute = _minute(year, number)
    if first_minute > now_minute:
        raise ValueError(f"{name} has not begun (months are in UTC)")
    end_minute = (
        _minute(year + number // 12, number % 12 + 1) if name < "9999-12" else first_minute + 31 * 1440
    )
    return Month(name, first_minute, end_minute, min(end_minute, now_minute))


def month_before(now_minute: int) -> str:
    """The month that ended last."""
    now_time = datetime.fromtimestamp(now_minute * 60, UTC)
    year, number = (now_time.year, now_time.month - 1) if now_time.month > 1 else (now_time.year - 1, 12)
    return f"{year:04}-{number:02}"


def minute_text(minute: int) -> str:
    """A minute as text, such as `2026-10-03T04:05Z`."""
    return datetime.fromtimestamp(minute * 60, UTC).strftime("%Y-%m-%dT%H:%MZ")


def _minute(year: int, number: int) -> int:
    return int(datetime(year, number, 1, tzinfo=UTC).timestamp()) // 60
