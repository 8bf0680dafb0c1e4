"""Spark SQL that reads the declared fields of an event's data. Pure."""

from collections.abc import Sequence
from typing import Final

from hifi.record.spark_sql import literal

JSON_FIELDS: Final = "hifi_json_fields"
"""The SQL function, see `JsonFields.java`."""


def json_fields(text: str, names: Sequence[str]) -> str:
    """SQL of the fields of a JSON object as text (array<string>, in order): numbers are as they were written.

    It is null where the text is not one object in UTF-8 as RFC 8259 has it, nested at most 1,000 deep.

    Args:
        text: SQL of the data (string), which may be anything.
        names: of the fields.
    """
    return f"{JSON_FIELDS}({', '.join([text, *map(literal, names)])})"
