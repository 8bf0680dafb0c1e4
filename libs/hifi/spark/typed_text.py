"""Spark SQL that reads the text of a JSON value as a declared type. Pure."""

from typing import Final

from hifi.pipe.model import SqlType

WHOLE_NUMBER: Final = "hifi_whole_number"
"""The SQL function, see `WholeNumber.java`."""
TYPED_TEXT: Final = "hifi_typed_text"
"""The SQL function, see `TypedText.java`."""


def typed_text(text: str, kind: SqlType) -> str:
    """SQL of the value of a text; null where it does not fit. `5.0` and `1e3` are whole numbers, `5.5` is none.

    Dates and times outside of the years 1 to 9999 in UTC fit no type.

    Args:
        text: SQL of the text.
        kind: declared type.
    """
    if kind is SqlType.BIGINT:
        return f"{WHOLE_NUMBER}({text})"
    if kind is SqlType.INT:
        return f"try_cast({WHOLE_NUMBER}({text}) as int)"
    if kind is SqlType.STRING:
        return f"cast({text} as string)"
    return f"{TYPED_TEXT}({text}, '{kind.value}')"


def stored_text(text: str, kind: SqlType) -> str:
    """As `typed_text`, for columns of files.

    A number that is too large for a double is null; the text `Infinity` is a double. Bytes of a text that are no UTF-8
    become U+FFFD: no reader of the file could decode them.
    """
    value = typed_text(text, kind)
    if kind is SqlType.STRING:
        return f"make_valid_utf8({value})"
    if kind is not SqlType.DOUBLE:
        return value
    return f"if(abs({value}) = double('Infinity') and {text} rlike '[0-9]', null, {value})"
