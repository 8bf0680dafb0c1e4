"""Spark SQL that reads the text of a JSON value as a declared type. Pure."""

from typing import Final

from hifi.pipe.model import SqlType

EXACT_TYPES: Final = frozenset({SqlType.STRING, SqlType.INT, SqlType.BIGINT})
"""Types that have a number with more digits than a double."""


def typed_text(text: str, kind: SqlType, *, stored: bool = False) -> str:
    """SQL of the value of a text; null where it does not fit. `5.0` and `1e3` are whole numbers, `5.5` is none.

    Args:
        text: SQL of the text.
        kind: declared type.
        stored: the value is kept as it is: the texts `NaN` and `Infinity` are doubles, and a number that is too large
            for one is null. In expressions, which it should not compare with, NaN is null.
    """
    if kind is SqlType.DOUBLE:
        number = f"cast({text} as double)"
        if not stored:
            return f"nullif({number}, double('NaN'))"
        return f"if(abs({number}) = double('Infinity') and {text} rlike '[0-9]', null, {number})"
    if kind not in (SqlType.INT, SqlType.BIGINT):
        return f"cast({text} as {kind.value})"
    number = f"try_cast({text} as decimal(38, 18))"
    whole = f"if({number} % 1 = 0, try_cast({number} as {kind.value}), null)"
    return f"coalesce(try_cast({text} as {kind.value}), {whole})"
