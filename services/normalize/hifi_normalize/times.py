"""Reading times as a pipe declares them; writing RFC 3339 in UTC with microseconds. Pure."""

from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Decimal, InvalidOperation
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from hifi.errors import Misconfigured
from hifi.pipe.model import TimeRule
from hifi_normalize.cast import Converter
from hifi_normalize.tree import plain, text_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PER_SECOND: Final = {"epoch_s": 1, "epoch_ms": 1000, "epoch_us": 1_000_000}


def reader(rule: TimeRule) -> Converter:
    """What reads times by a rule; it raises ValueError on what it cannot read.

    Raises:
        Misconfigured: there is no such time zone.
    """
    if rule.format in _PER_SECOND:
        per_second = _PER_SECOND[rule.format]
        return lambda value: write(_since_1970(_text(value), per_second))
    zone, iso = _zone(rule.zone), rule.format == "iso8601"

    def convert(value: Any) -> str:
        text = _text(value)
        moment = datetime.fromisoformat(text) if iso else datetime.strptime(text, rule.format)  # noqa: DTZ007
        return write(moment if moment.tzinfo else moment.replace(tzinfo=zone))

    return convert


def write(moment: datetime) -> str:
    """RFC 3339 in UTC with microseconds, `Z` at the end.

    Raises:
        ValueError: the moment is before the year 1 or after the year 9999 in UTC.
    """
    try:
        moment = moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("out of range") from None
    return f"{moment.year:04}-{moment:%m-%dT%H:%M:%S.%f}Z"


def _since_1970(text: str, per_second: int) -> datetime:
    try:
        microseconds = Decimal(text) * (1_000_000 // per_second)
        return _EPOCH + timedelta(microseconds=int(microseconds))
    except (InvalidOperation, OverflowError):
        raise ValueError("not a time since 1970") from None


def _text(value: Any) -> str:
    text = text_of(value)
    if text[:1] in b"{[tf":
        raise ValueError("neither text nor a number")
    return str(plain(value)).strip() if text[:1] == b'"' else text.decode()


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Misconfigured(
            f"there is no time zone {name!r}; write an IANA name such as Europe/Berlin"
        ) from None
