"""Avro values to JSON. Pure.

Logical types become text: a decimal with all digits of its scale, a timestamp in RFC 3339, a date, a time, a UUID.
Bytes and fixed become base64, a union the value alone, a float that JSON does not have the text `NaN`, `Infinity` or
`-Infinity`.
"""

import base64
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from io import BytesIO
from typing import Any, Final

import fastavro
import orjson
from fastavro import _read_py

import hifi.avro.logical_types  # noqa: F401 - fastavro reads them exactly
from hifi.avro.schema import AvroSchema
from hifi.runtime import exact_json
from hifi.runtime.errors import Rejected

_OPTIONS: Final = orjson.OPT_PASSTHROUGH_DATETIME
"""orjson 3.13 itself writes a time of day with 81,940 microseconds as `.81940`."""
_UTC: Final = "+00:00"
_read_recursive: Final[Callable[..., Any]] = _read_py.schemaless_reader
"""fastavro's reader in Python. The compiled one overflows the stack of the process on values that are nested deeply."""


def decode(schema: AvroSchema, value: bytes) -> bytes:
    """A value as JSON.

    Raises:
        Rejected: it does not have this schema, or JSON cannot represent it.
    """
    stream = BytesIO(value)
    read = _read_recursive if schema.recursive else fastavro.schemaless_reader
    try:
        document = read(stream, schema.parsed, None)
    except RecursionError:
        raise Rejected("not-avro", "the value is nested too deeply") from None
    except OverflowError:
        raise Rejected("not-avro", "a date or time is outside of the years 1 to 9999") from None
    except Exception as error:  # noqa: BLE001 - bytes without meaning make fastavro fail in many ways
        raise Rejected(
            "not-avro", f"the value does not have the schema of its id ({type(error).__name__})"
        ) from None
    if stream.tell() != len(value):
        detail = f"{len(value) - stream.tell()} bytes are left after the value"
        raise Rejected("not-avro", detail)
    try:
        text = orjson.dumps(document, default=_text, option=_OPTIONS)
        if b"null" in text and exact_json.has_non_finite(document):
            text = orjson.dumps(exact_json.non_finite_as_text(document), default=_text, option=_OPTIONS)
        return text
    except orjson.JSONEncodeError as error:
        raise Rejected("not-avro", f"the value cannot be written as JSON: {error}") from None


def _text(value: Any) -> str:
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.isoformat().removesuffix(_UTC) + "Z"
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    raise TypeError(f"{type(value).__name__} has no form in JSON")
