"""Read times in the format that a pipe declares, and write them as RFC 3339 in UTC with microseconds. Pure."""

import math
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from decimal import Context, Decimal
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from hifi.pipe.model import TimeRule
from hifi.pipe.normalize.casting import Converter
from hifi.pipe.normalize.lazy_json import json_text, to_python
from hifi.record.cloudevents.timestamps import parse_iso8601
from hifi.runtime.errors import Misconfigured

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PER_SECOND: Final = {"epoch_s": 1, "epoch_ms": 1000, "epoch_us": 1_000_000}
_DIGITS: Final = re.compile(r"\d{1,18}", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?(?:\d{1,40}\.?\d{0,40}|\.\d{1,40})(?:[eE][+-]?\d{1,2})?", re.ASCII)
"""Numbers whose arithmetic is cheap: an event chooses its digits and exponent."""
_SIMPLE: Final = re.compile(r"(?:%[YmdHMS](?:[-/.:, TZ]|$))+")
"""Formats with one character between any two numbers, so that a text can be read in one way only."""
_ORDER: Final = "YmdHMS"
_DIRECTIVE: Final = re.compile("%(.)", re.DOTALL)
_UTC_NAMES: Final = ("UTC", "GMT")
"""The zones that `%Z` reads: other names have more than one meaning, and `strptime` takes those of the host."""
_EXACT: Final = Context(prec=100)
"""For products of `_NUMBER`."""


def time_reader(rule: TimeRule) -> Converter:
    """A function that reads a time and returns it as RFC 3339; it raises ValueError if the value does not fit.

    Raises:
        Misconfigured: the time zone does not exist, or the format is none.
    """
    if rule.format in _PER_SECOND:
        per_second = _PER_SECOND[rule.format]
        return lambda value: format_time(_since_1970(_text(value), per_second))
    # A local time that a zone skips or has twice is read as RFC 5545 (3.3.5) says: with the offset before the change.
    zone = _zone(rule.zone)
    parse = parse_iso8601 if rule.format == "iso8601" else _by_format(rule.format, zone)

    def convert(value: Any) -> str:
        instant = parse(_text(value))
        return format_time(instant if instant.tzinfo else instant.replace(tzinfo=zone))

    return convert


def ignored_part(time_format: str) -> str | None:
    """The part of a time that `strptime` reads in this format without using it, or takes for granted; None: no part.

    Args:
        time_format: a pattern, or a name such as `iso8601`.
    """
    directives = set(_DIRECTIVE.findall(time_format))
    if not directives:
        return None
    if not directives & set("YyGcx"):
        return "it has no year: each time would be in 1900; add %Y"
    if directives & set("UW") and not directives & set("aAwudjcx"):
        return "a week without the day of it is ignored; add %u"
    if ("p" in directives) != ("I" in directives):
        return "the hour of 12 hours (%I) and AM or PM (%p) need each other; write both, or %H"
    return None


def format_time(instant: datetime) -> str:
    """RFC 3339 in UTC with microseconds, `Z` at the end.

    Raises:
        ValueError: the moment is before the year 1 or after the year 9999 in UTC.
    """
    try:
        instant = instant.astimezone(UTC)
    except OverflowError:
        raise ValueError("out of range") from None
    return instant.isoformat("T", "microseconds").removesuffix("+00:00") + "Z"


def _by_format(time_format: str, zone: tzinfo) -> Callable[[str], datetime]:
    """A function like `strptime` for one format. Simple formats are read five times faster, already in the zone."""

    def strptime(text: str) -> datetime:
        return datetime.strptime(text, time_format)  # noqa: DTZ007 - the caller adds the zone

    _require_format(time_format, strptime)
    if "Z" in _DIRECTIVE.findall(time_format):
        return _with_zone_name(time_format)
    directives = time_format[1::3] if _SIMPLE.fullmatch(time_format) else ""
    letters = "".join(sorted(directives, key=_ORDER.index))
    if len(letters) < len("Ymd") or not _ORDER.startswith(letters):
        return strptime
    pattern_text = re.sub(
        "%(.)", lambda directive: r"(\d{4})" if directive[1] == "Y" else r"(\d\d?)", re.escape(time_format)
    )
    pattern = re.compile(pattern_text, re.ASCII)
    groups = [directives.index(letter) + 1 for letter in letters]
    padding = (0,) * (len(_ORDER) - len(letters))

    def simple(text: str) -> datetime:
        match = pattern.fullmatch(text)
        if match is None:
            return strptime(text)
        year, month, day, hour, minute, second = (*map(int, match.group(*groups)), *padding)
        return datetime(year, month, day, hour, minute, second, tzinfo=zone)

    return simple


def _with_zone_name(time_format: str) -> Callable[[str], datetime]:
    """A function like `strptime` for a format with `%Z`, which reads the names of UTC only, whatever the host is."""
    formats = [_with_literal_zone(time_format, name) for name in _UTC_NAMES]

    def read(text: str) -> datetime:
        for utc_format in formats:
            try:
                instant = datetime.strptime(text, utc_format)  # noqa: DTZ007 - it may have an offset, too
            except ValueError:
                continue
            return instant if instant.tzinfo else instant.replace(tzinfo=UTC)
        raise ValueError("not a time of the format with the zone UTC or GMT")

    return read


def _with_literal_zone(time_format: str, name: str) -> str:
    return _DIRECTIVE.sub(lambda directive: name if directive[1] == "Z" else directive[0], time_format)


def _require_format(time_format: str, strptime: Callable[[str], datetime]) -> None:
    """Raise Misconfigured if a format is none: `strptime` says so whatever the text is."""
    try:
        strptime("")
    except ValueError as error:
        reason = str(error)
        if reason.startswith("time data"):  # the empty text does not have this format
            return
    except re.error:
        reason = "it has a directive twice, perhaps as a part of another, such as %Y of %c"
    else:
        return
    raise Misconfigured(
        f"{time_format!r} is not the format of a time: {reason}; write one such as %d/%m/%Y %H:%M"
    )


def _since_1970(text: str, per_second: int) -> datetime:
    if not _NUMBER.fullmatch(text):
        raise ValueError("not a time since 1970")
    unit_us = 1_000_000 // per_second
    if _DIGITS.fullmatch(text):
        time_us = int(text) * unit_us
    else:  # finer digits are cut, as of a text
        time_us = math.floor(_EXACT.multiply(Decimal(text), Decimal(unit_us)))
    try:
        return _EPOCH + timedelta(microseconds=time_us)
    except OverflowError:
        raise ValueError("out of range") from None


def _text(value: Any) -> str:
    text = json_text(value)
    if text[:1] in b"{[tf":
        raise ValueError("not text or a number")
    return str(to_python(value)).strip() if text[:1] == b'"' else text.decode()


def _zone(name: str) -> tzinfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Misconfigured(
            f"there is no time zone {name!r}; write an IANA name such as Europe/Berlin"
        ) from None
