"""Spark SQL that reads the text of a JSON value as a declared type. Pure."""

from typing import Final

from hifi.pipe.model import SqlType

EXACT_TYPES: Final = frozenset({SqlType.STRING, SqlType.INT, SqlType.BIGINT})
"""Types that have a number with more digits than a double."""


def typed_text(text: str, kind: SqlType) -> str:
    """SQL of the value of a text; null where it does not fit. `5.0` and `1e3` are whole numbers, `5.5` is none.

    Args:
        text: SQL of the text.
        kind: declared type.
    """
    if kind not in (SqlType.INT, SqlType.BIGINT):
        return f"cast({text} as {kind.value})"
    number = f"try_cast({text} as decimal(38, 18))"
    whole_number = f"if({number} % 1 = 0, try_cast({number} as {kind.value}), null)"
    return f"coalesce(try_cast({text} as {kind.value}), {whole_number})"


def stored_text(text: str, kind: SqlType) -> str:
    """As `typed_text`, but a number that is too large for a double is null; the text `Infinity` is a double."""
    value = typed_text(text, kind)
    if kind is not SqlType.DOUBLE:
        return value
    return f"if(abs({value}) = double('Infinity') and {text} rlike '[0-9]', null, {value})"
