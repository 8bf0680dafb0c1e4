"""Spark SQL that reads the declared fields of an event's data and decides whether the data is one JSON object.

Spark's JSON parsers ignore text after the first value. To detect it, the data is wrapped in an array followed by an
unguessable element: after trailing text that element is not the second of two, or the array does not parse.
"""

import secrets
from collections.abc import Sequence
from typing import Final

from hifi.record.spark_sql import literal

_NONCE: Final = f"end{secrets.token_hex(12)}"
_NUMBER: Final = r"^-?[0-9]+\\.[0-9]+(E-?[0-9]+)?$"
"""As Spark writes numbers with a fraction or an exponent."""
_MANY_DIGITS: Final = "[0-9.]{16}"
_STRICT: Final = "map('mode', 'FAILFAST', 'allowSingleQuotes', 'false', 'allowNonNumericNumbers', 'false')"
"""Options of `from_json` that make it accept what RFC 8259 allows, and no more; other modes continue after an error."""


def _let(name: str, value: str, body: str) -> str:
    """SQL that evaluates `value` once and binds it to `name` in `body`.

    It is an `aggregate` over an empty array that starts with the value and finishes with the body. `transform` would
    work too, but its type depends on whether an element can be null, so Spark's analysis visits each level of nesting
    twice: 2^n steps. The line break ends a comment at the end of the user's text.
    """
    return f"aggregate(array(), ({value}\n), (`hifi all`, `hifi one`) -> `hifi all`, `{name}` -> {body})"


def json_fields(text: str, names: Sequence[str]) -> str:
    """SQL of the fields of a JSON object as text (array<string>, in order).

    It is null or raises an error where the text is not one object: use it where an error gives null.

    The text is parsed once. With an escaped code unit it is parsed a second time, to refuse half a surrogate pair.

    Args:
        text: SQL of the data (string), which may be anything.
        names: of the fields; without any the array has one empty text.
    """
    members = ", ".join([*(f"`{name}`: string" for name in names), f"{_NONCE}: bigint"])
    fields = _array("`hifi data`[0]", names)
    once = _let(
        "hifi data",
        f"from_json({_wrapped(text)}, 'array<struct<{members}>>', {_STRICT})",
        f"if(size(`hifi data`) = 2 and `hifi data`[1].{_NONCE} = 1, {fields}, null)",
    )
    begins = f"is_valid_utf8({text}) and startswith(ltrim(' \\t\\r\\n', {text}), '{{')"
    escaped = f"contains({text}, '\\\\u')"
    return f"case when {begins} then if({escaped}, {fields_of_valid(text, names)}, {once}) end"


def fields_of_valid(text: str, names: Sequence[str]) -> str:
    """As `json_fields`, for text that begins as an object, parsed twice."""
    schema = ", ".join(f"`{name}` string" for name in names)
    array = _array("`hifi data`", names)
    if names:
        array = _let("hifi data", f"from_json({text}, '{schema}')", array)
    is_whole = f"try_variant_get(try_parse_json({_wrapped(text)}), '$[1].{_NONCE}', 'bigint') = 1"
    return f"if({is_whole}, {array}, null)"


def _wrapped(text: str) -> str:
    return f"concat('[', {text}, ',{{\"{_NONCE}\":1}}]')"


def exact_number(field: str, text: str, name: str) -> str:
    """SQL of a field as text, where `from_json` has read a number with a fraction or an exponent as a double.

    Numbers of up to 38 digits keep all of them, without zeros at the end.

    Args:
        field: SQL of what `from_json` read.
        text: SQL of the data.
        name: of the field.
    """
    is_number = f"contains({field}, '.') and {field} rlike '{_NUMBER}' and {text} rlike '{_MANY_DIGITS}'"
    path = literal(f"$['{name}']")
    number = f"try_variant_get(try_parse_json({text}), {path}, 'string')"
    return f"if({is_number}, coalesce({number}, {field}), {field})"


def _array(data: str, names: Sequence[str]) -> str:
    fields = ", ".join(f"{data}.`{name}`" for name in names)
    return f"array({fields})" if fields else "array('')"
