"""Keys and values of lookups' rows, and which lookups share a table."""

from datetime import UTC, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi.pipe.model import Lookup, SqlType
from hifi.spark.lookup_key import key_parts, key_text, table_id, typed


def lookup(file: Path | str = "/x.csv", **settings: Any) -> Lookup:
    return Lookup.model_validate(
        {"file": str(file), "key": {"carrier": "code"}, "fields": {"airline": "name"}, **settings}
    )


@given(st.lists(st.lists(st.text(max_size=4), min_size=2, max_size=2), min_size=2, max_size=2))
def test_different_composite_keys_never_look_alike(keys: list[list[str]]) -> None:
    assert (key_text(keys[0]) == key_text(keys[1])) == (keys[0] == keys[1])


@given(st.lists(st.text(max_size=4), min_size=1, max_size=3))
def test_a_key_can_be_taken_apart(key_fields: list[str]) -> None:
    assert key_parts(key_text(key_fields), len(key_fields)) == key_fields


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        ("7", "int", 7), (7.0, "bigint", 7), (" ", "int", None), (float("nan"), "double", None), ("T", "boolean", True),
        ("2024-02-29", "date", "2024-02-29"), ("2024-02-29 12:00 UTC", "date", "2024-02-29"),
        ("2016-12-31t23:59:60z", "timestamp", "2017-01-01T00:00:00.000000+00:00"),
        (" 1.5e3 ", "double", 1500.0), ("-Infinity", "double", float("-inf")), ("+7.", "int", 7),
        (Decimal("Infinity"), "double", float("inf")),
        ("2024-02-29T01:00:00+01:00", "timestamp", "2024-02-29T00:00:00.000000+00:00"),
        (3, "string", "3"), (True, "string", "true"),
        (Decimal("0E-10"), "string", "0.0000000000"), (Decimal("1.200E-7"), "string", "0.0000001200"),
        (Decimal("1E+3"), "string", "1000"), (10**30, "string", "1" + "0" * 30), (b"\x01\xff", "string", "Af8="),
        (time(1, 2), "string", "01:02:00"), (Decimal("1e-999999999"), "string", "1E-999999999"),
        ({"a": [1, None, Decimal("1.10"), float("nan"), 10**30]}, "string",
         '{"a":[1,null,"1.10","NaN",1000000000000000000000000000000]}'),
        ([datetime(2026, 1, 2, tzinfo=UTC)], "string", '["2026-01-02T00:00:00+00:00"]'),
    ],
)  # fmt: skip
def test_values_are_read_as_their_types(value: Any, kind: str, expected: Any) -> None:
    assert typed(value, SqlType(kind)) == expected


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ("7.5", "int"), (2**31, "int"), ("inf", "bigint"), ("NA", "int"),
        ("1e999999999", "int"), (Decimal("-1e999999999"), "bigint"), ("1e-999999999", "int"),
        ("2", "boolean"), ("x", "date"), ("2026-07-01x", "date"), ("2026-07-011", "date"),
        ("1_000", "int"), ("1_000", "double"), ("\uff11\uff12", "bigint"), ("\uff11\uff12", "double"),
        ("12,50", "double"), ("1e309", "double"), (Decimal("-1e309"), "double"),
        ("9999-12-31T23:59:59-05:00", "timestamp"),
    ],
)  # fmt: skip
def test_values_that_are_not_of_their_type_are_refused(value: Any, kind: str) -> None:
    with pytest.raises(ValueError):
        typed(value, SqlType(kind))


def test_a_table_is_shared_only_by_lookups_that_hold_the_same() -> None:
    assert table_id(lookup(), "p") == table_id(lookup(miss="dead-letter"), "p")
    other_lookups = [
        lookup(fields={"airline": "title"}),
        lookup("/y.csv"),
        lookup(key={"carrier": "name"}),
        lookup(types={"name": "int"}),
        lookup(refresh=1),
    ]
    assert len({table_id(table_lookup, "p") for table_lookup in (lookup(), *other_lookups)}) == 6
