"""What a lookup's rows are found by. The event's side of the same rules is SQL, in `hifi_enrich.sql`."""

import hashlib
import math
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from hifi.pipe.model import Lookup, SqlType


def table_id(lookup: Lookup) -> str:
    """Equal for lookups that hold the same rows in the same way, so that pipes share them in memory."""
    same = lookup.model_dump_json(include={"file", "sql", "key", "fields", "types", "refresh", "expire"})
    columns = "|".join([*lookup.key.values(), "", *lookup.fields.values()])
    return hashlib.blake2b(f"{same}{columns}".encode(), digest_size=8).hexdigest()


def key_text(parts: Sequence[str]) -> str:
    """One part as it is; several with their lengths before them, so that no two keys can look alike."""
    return parts[0] if len(parts) == 1 else "".join(f"{len(part)}:{part}" for part in parts)


def part(value: Any, kind: SqlType) -> str | None:
    """A part of a key as Spark would write it, from a value of `typed`. None: it matches nothing."""
    if value is None:
        return None
    if kind is SqlType.BOOLEAN:
        return "true" if value else "false"
    if kind is SqlType.TIMESTAMP:
        return str(_microseconds(datetime.fromisoformat(value)))
    return str(value)


def text_of(value: Any) -> str | None:
    """A value of `typed` as text that Spark casts back to the same value."""
    return _string(value) if value is not None else None


def typed(value: Any, kind: SqlType) -> Any:
    """A table's value as JSON of the declared type.

    Raises:
        ValueError, TypeError: it cannot be read as that type.
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, str) and kind is not SqlType.STRING:
        value = value.strip()
        if not value:
            return None
    try:
        return _READERS[kind](value)
    except OverflowError as error:  # a time that is none in UTC
        raise ValueError(str(error)) from None


def _string(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime | date):
        return value.isoformat()
    return value if isinstance(value, str) else str(value)


def _boolean(value: Any) -> bool:
    known = {"true": True, "t": True, "yes": True, "y": True, "1": True}
    known |= {"false": False, "f": False, "no": False, "n": False, "0": False}
    try:
        return value if isinstance(value, bool) else known[str(value).lower()]
    except KeyError:
        raise ValueError(f"{value!r} is not a boolean") from None


def _whole(value: Any, bits: int) -> int:
    try:
        number = value if isinstance(value, int) else Decimal(str(value))
        if number == int(number) and -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
            return int(number)
    except ArithmeticError:  # not a number at all, or an infinite one
        pass
    raise ValueError(f"{value!r} is not a whole number of {bits} bits")


def _date(value: Any) -> str:
    if isinstance(value, datetime):
        return value.date().isoformat()
    return (value if isinstance(value, date) else date.fromisoformat(str(value)[:10])).isoformat()


def _timestamp(value: Any) -> str:
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(str(value))
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def _microseconds(moment: datetime) -> int:
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86400 + since.seconds) * 1_000_000 + since.microseconds


_READERS: dict[SqlType, Any] = {
    SqlType.STRING: _string,
    SqlType.BOOLEAN: _boolean,
    SqlType.INT: lambda value: _whole(value, 32),
    SqlType.BIGINT: lambda value: _whole(value, 64),
    SqlType.DOUBLE: float,
    SqlType.DATE: _date,
    SqlType.TIMESTAMP: _timestamp,
}
