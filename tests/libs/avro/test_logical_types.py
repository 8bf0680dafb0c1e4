"""Decimals keep every digit, UUIDs their form, and times of day are of a day, in values of topics and of files."""

import io
from decimal import Decimal
from typing import Any

import fastavro
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi.avro.logical_types import read_decimal
from hifi.avro.schema import read_schema
from hifi.runtime.errors import Rejected
from hifi_kafka.avro.decode import decode

BYTES = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
FIXED = {"type": "fixed", "name": "F", "size": 8, "logicalType": "decimal", "precision": 4, "scale": 2}
LONG_FRACTION = BYTES | {"precision": 10**9, "scale": 10**9}
MICROS = {"type": "long", "logicalType": "time-micros"}
MILLIS = {"type": "int", "logicalType": "time-millis"}
TEXT_UUID = {"type": "string", "logicalType": "uuid"}
DAY_US = 86_400_000_000


def decoded(data_type: Any, value: Any, *, recursive: bool) -> Any:
    """The JSON of a value as a field of a record."""
    fields: list[Any] = [{"name": "v", "type": data_type}]
    if recursive:
        fields.append({"name": "n", "type": ["null", "R"], "default": None})
    schema = read_schema(orjson.dumps({"type": "record", "name": "R", "fields": fields}))
    sink = io.BytesIO()
    fastavro.schemaless_writer(sink, schema.parsed, {"v": value})
    return orjson.loads(decode(schema, sink.getvalue()))["v"]


@pytest.mark.parametrize("recursive", [False, True])
@pytest.mark.parametrize(
    ("data_type", "value", "expected"),
    [
        (BYTES, (2**63).to_bytes(9, "big"), "92233720368547758.08"),
        (BYTES, (-1).to_bytes(5, "big", signed=True), "-0.01"),
        (BYTES, b"", "0.00"),
        (FIXED, (-(2**63)).to_bytes(8, "big", signed=True), "-92233720368547758.08"),
        (MICROS, DAY_US - 1, "23:59:59.999999"),
        (MILLIS, 1, "00:00:00.001000"),
        (MICROS, 0, "00:00:00"),
        (TEXT_UUID, "0000000000000000000000000000000A", "0000000000000000000000000000000A"),
        (TEXT_UUID, "order-17", "order-17"),
        (TEXT_UUID, "", ""),
    ],
)
def test_a_value_is_read_as_it_is(data_type: Any, value: Any, expected: str, *, recursive: bool) -> None:
    assert decoded(data_type, value, recursive=recursive) == expected


@pytest.mark.parametrize("recursive", [False, True])
@pytest.mark.parametrize(
    ("data_type", "value"),
    [
        (MICROS, -1),
        (MICROS, DAY_US),
        (MILLIS, -1),
        (MILLIS, DAY_US // 1000),
        (BYTES, b"\x7f" * 2049),
        (LONG_FRACTION, b"\1"),
    ],
)
def test_a_time_outside_of_a_day_and_a_decimal_without_bound_are_refused(
    data_type: Any, value: Any, *, recursive: bool
) -> None:
    with pytest.raises(Rejected, match="not-avro"):
        decoded(data_type, value, recursive=recursive)


@given(st.integers(-(10**80), 10**80), st.integers(0, 100))
def test_a_decimal_has_every_digit_whatever_its_schema_says(unscaled: int, scale: int) -> None:
    data = unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)
    decimal = read_decimal(data, {"precision": 1, "scale": scale})
    assert decimal.as_tuple().exponent == -scale
    assert Decimal(f"{decimal:f}e{scale}") == unscaled
