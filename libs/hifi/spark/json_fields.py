"""Spark SQL that reads the declared fields of an event's data. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from hifi.record.spark_sql import literal

JSON_FIELDS: Final = "hifi_json_fields"
"""The SQL function, see `JsonFields.java`."""
JSON_MATCH: Final = "hifi_json_match"
"""The SQL function, see `JsonMatch.java`."""


def json_fields(text: str, names: Sequence[str]) -> str:
    """SQL of the fields of a JSON object as text (array<string>, in order): numbers are as they were written.

    It is null where the text is not one object in UTF-8 as RFC 8259 has it, nested at most 1,000 deep.

    Args:
        text: SQL of the data (string), which may be anything.
        names: of the fields.
    """
    return f"{JSON_FIELDS}({', '.join([text, *map(literal, names)])})"


def json_match(text: str, values: Mapping[str, Any]) -> str:
    """SQL of whether fields of a JSON object have values (boolean): `1` is `1.0`, but not `"1"`, and null is absent.

    It is null where the text is not one object, as with `json_fields`.

    Args:
        text: SQL of the data (string), which may be anything.
        values: path, with dots into nested objects, to the value, as JSON has it.
    """
    arguments = [
        literal(part) for path, value in values.items() for part in (path, orjson.dumps(value).decode())
    ]
    return f"{JSON_MATCH}({', '.join([text, *arguments])})"
