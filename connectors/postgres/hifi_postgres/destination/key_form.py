"""One form for all texts of a key that PostgreSQL finds equal. Pure.

Changes of the same row are known by the texts of its key: their order within a batch, their locks, and the tombstones
of deleted rows. Whole numbers, lower-case UUIDs, dates, `true` and IPv4 addresses are their own form. Other usual texts
are not: a fraction has no zeros at its end, so the form of `2026-07-01T10:00:00.000000Z`, as normalize writes times, is
`2026-07-01T10:00:00Z`, and that of the number `12.50` is `12.5`.
"""

import math
import re
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from ipaddress import ip_interface
from string import ascii_lowercase, ascii_uppercase
from typing import Final
from uuid import UUID

from hifi.runtime import exact_json
from hifi.runtime.floating_point import nearest
from hifi_postgres.destination.column_type import ColumnType
from hifi_postgres.destination.values import NUMBER

_NOT_FINITE: Final[Mapping[str, str]] = {"nan": "NaN"} | {
    sign + name: ("-" if sign == "-" else "") + "Infinity"
    for sign in ("", "+", "-")
    for name in ("inf", "infinity")
}
_DAY: Final = (
    r"(?:(?P<year>\d{4,7})-(?P<month>\d\d)-(?P<day>\d\d)|(?P<year_8>\d{4})(?P<month_8>\d\d)(?P<day_8>\d\d))"
)
_TIME: Final = (
    r"(?P<hour>\d\d):?(?P<minute>\d\d)(?::?(?P<second>\d\d(?:\.\d+)?))?"
    r"(?:[Zz]|(?P<sign>[+-])(?P<offset_hour>\d\d)(?::?(?P<offset_minute>\d\d)(?::?(?P<offset_second>\d\d))?)?)?"
)
_MOMENT: Final = re.compile(rf"{_DAY}(?:[Tt ]{_TIME})?(?P<before_christ> BC)?", re.ASCII)
_TIME_OF_DAY: Final = re.compile(rf"[Tt]?{_TIME}", re.ASCII)
_USUAL_MOMENT: Final = re.compile(
    r"((?!0000)\d{4}-\d\d-\d\dT(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d)(?:\.(\d{1,6}))?Z?", re.ASCII
)
_CYCLE_YEARS: Final = 400
"""Years after which the Gregorian calendar repeats itself."""
_MICROSECONDS: Final = 1_000_000
_DAY_US: Final = 86_400 * _MICROSECONDS
_BOOLEANS: Final = (("true", "true"), ("yes", "true"), ("false", "false"), ("no", "false"))
"""Words that PostgreSQL also reads if only their first letters are there, and what they mean."""
_SHORT_BOOLEANS: Final[Mapping[str, str]] = {
    "1": "true",
    "on": "true",
    "0": "false",
    "of": "false",
    "off": "false",
}
_LEAST_DIGITS, _MOST_DIGITS = 6, 9
"""Significant digits that tell a floating-point number of 32 bits from all others."""


def key_form(text: str | None, column: ColumnType) -> str | None:
    """The form of a key: one for all texts that PostgreSQL finds equal, as far as the type tells.

    Args:
        text: of the value, see `column_text`.
        column: type of the column.
    """
    return _in_form(_KEY_FORMS, text, column)


def earlier_key_form(text: str | None, column: ColumnType) -> str | None:
    """The form that 0.1.0rc1 gave a key: tombstones that it wrote have it.

    Args:
        text: of the value, see `column_text`.
        column: type of the column.
    """
    return _in_form(_EARLIER_KEY_FORMS, text, column)


def _in_form(forms: Mapping[str, Callable[[str], str]], text: str | None, column: ColumnType) -> str | None:
    form = forms.get(column.name)
    return text if form is None or text is None else form(text)


def _number_form(text: str) -> str:
    form = _finite_form(text)
    return form if form[-1:].isdecimal() else _NOT_FINITE.get(form.strip().lower(), form)


def _finite_form(text: str) -> str:
    if text.isdecimal() and text.isascii() and (text[0] != "0" or text == "0"):  # most keys
        return text
    match = NUMBER.fullmatch(text.strip())
    try:
        return text if match is None else exact_json.canonical_number(Decimal(match[0]))
    except InvalidOperation:  # its exponent is too large for any type
        return text


def _float_form(text: str) -> str:
    return _floating_form(32, text)


def _double_form(text: str) -> str:
    return _floating_form(64, text)


def _floating_form(bits: int, text: str) -> str:
    form = _number_form(text)
    if NUMBER.fullmatch(form) is None:
        return form
    number = nearest(Decimal(form), bits)
    if math.isinf(number):  # the type does not have it
        return form
    return exact_json.canonical_number(Decimal(_shortest(number) if bits == 32 else repr(number)))


def _shortest(number: float) -> str:
    rounded_texts = [f"{number:.{digits}g}" for digits in range(_LEAST_DIGITS, _MOST_DIGITS + 1)]
    return next((text for text in rounded_texts if nearest(float(text), 32) == number), rounded_texts[-1])


def _boolean_form(text: str) -> str:
    word = text.strip().lower()
    for whole_word, form in _BOOLEANS:
        if word and whole_word.startswith(word):
            return form
    return _SHORT_BOOLEANS.get(word, text)


def _uuid_form(text: str) -> str:
    try:
        return str(UUID(text.strip()))
    except ValueError:
        return text


def _address_form(text: str) -> str:
    try:
        interface = ip_interface(text.strip())
    except ValueError:
        return text
    return str(interface.ip if interface.network.prefixlen == interface.max_prefixlen else interface)


def _padded_form(text: str) -> str:
    return text.rstrip(" ")


def _lower_form(text: str) -> str:
    return text.translate(_ASCII_LOWER)


def _bytes_form(text: str) -> str:
    return "".join(text.lower().split())


def _date_form(text: str) -> str:
    return _day_and_time_form(text, is_date=True, zone="")


def _local_moment_form(text: str) -> str:
    return _moment_form(text, zone="")


def _moment_in_utc_form(text: str) -> str:
    return _moment_form(text, zone="Z")


def _moment_form(text: str, zone: str) -> str:
    match = _USUAL_MOMENT.fullmatch(text)
    if match is None:
        return _day_and_time_form(text, is_date=False, zone=zone)
    fraction = (match[2] or "").rstrip("0")
    return f"{match[1]}.{fraction}{zone}" if fraction else f"{match[1]}{zone}"


def _day_and_time_form(text: str, is_date: bool, zone: str) -> str:
    """The form of a date or of a time in UTC.

    Args:
        text: a date, or a date and a time.
        is_date: whether only the day counts.
        zone: what follows the time in the form.
    """
    match = _MOMENT.fullmatch(text.strip())
    if match is None:
        return _NOT_FINITE.get(text.strip().lower(), text).lower()
    years, months, days = (match[name] or match[f"{name}_8"] for name in ("year", "month", "day"))
    year = 1 - int(years) if match["before_christ"] else int(years)
    cycles, year_of_cycle = divmod(year, _CYCLE_YEARS)
    time_us = 0 if is_date or match["hour"] is None else _time_us(match) - _offset_s(match) * _MICROSECONDS
    moved_days, time_us = divmod(time_us, _DAY_US)
    try:
        day = date(5 * _CYCLE_YEARS + year_of_cycle, int(months), int(days)) + timedelta(moved_days)
    except ValueError:  # there is no such day
        return text
    year = cycles * _CYCLE_YEARS + day.year - 5 * _CYCLE_YEARS
    date_text = f"{year if year > 0 else 1 - year:04}{day:-%m-%d}"
    era = "" if year > 0 else " BC"
    return date_text + era if is_date else f"{date_text}T{_clock(time_us)}{zone}{era}"


def _time_form(text: str) -> str:
    match = _TIME_OF_DAY.fullmatch(text.strip())
    return text if match is None else _clock(_time_us(match))


def _zoned_time_form(text: str) -> str:
    """Two times are only equal with the same offset from UTC."""
    match = _TIME_OF_DAY.fullmatch(text.strip())
    if match is None:
        return text
    offset_s = _offset_s(match)
    sign, offset_s = "-" if offset_s < 0 else "+", abs(offset_s)
    zone = f"{sign}{offset_s // 3600:02}:{offset_s // 60 % 60:02}:{offset_s % 60:02}" if offset_s else "Z"
    return _clock(_time_us(match)) + zone


def _time_us(match: re.Match[str]) -> int:
    """The time of day that a text has, microseconds."""
    second_us = Decimal(match["second"] or 0).quantize(Decimal("1e-6"), ROUND_HALF_EVEN) * _MICROSECONDS
    return (int(match["hour"]) * 60 + int(match["minute"])) * 60 * _MICROSECONDS + int(second_us)


def _offset_s(match: re.Match[str]) -> int:
    """The offset from UTC that a text has, seconds; without one, 0: the zone of the session."""
    hours, minutes, seconds = (int(match[f"offset_{unit}"] or 0) for unit in ("hour", "minute", "second"))
    offset_s = (hours * 60 + minutes) * 60 + seconds
    return -offset_s if match["sign"] == "-" else offset_s


def _clock(time_us: int) -> str:
    seconds, fraction_us = divmod(time_us, _MICROSECONDS)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{clock}.{fraction_us:06}".rstrip("0") if fraction_us else clock


_ASCII_LOWER: Final = str.maketrans(ascii_uppercase, ascii_lowercase)
"""Which other letters are equal is up to the locale of the database."""
_KEY_FORMS: Final[Mapping[str, Callable[[str], str]]] = {
    **dict.fromkeys(("int2", "int4", "int8", "oid", "numeric", "money"), _number_form),
    "float4": _float_form,
    "float8": _double_form,
    "bool": _boolean_form,
    "uuid": _uuid_form,
    "bpchar": _padded_form,
    "citext": _lower_form,
    "bytea": _bytes_form,
    "inet": _address_form,
    "date": _date_form,
    "timestamp": _local_moment_form,
    "timestamptz": _moment_in_utc_form,
    "time": _time_form,
    "timetz": _zoned_time_form,
}
"""Type to the form of its texts."""
_EARLIER_KEY_FORMS: Final[Mapping[str, Callable[[str], str]]] = {
    **dict.fromkeys(("int2", "int4", "int8", "oid", "numeric"), _finite_form),
    "uuid": _uuid_form,
    "bpchar": _padded_form,
    "citext": _lower_form,
}
"""Type to the form that `earlier_key_form` gives its texts."""
