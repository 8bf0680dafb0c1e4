"""JSON values as texts for columns. What PostgreSQL makes of them: test_postgres_values.py."""

import contextlib
from datetime import UTC, date, datetime, time, tzinfo
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hifi.runtime import exact_json
from hifi.runtime.floating_point import nearest
from hifi_postgres.destination.arrays import array_text
from hifi_postgres.destination.column_type import ColumnType
from hifi_postgres.destination.key_form import key_form
from hifi_postgres.destination.values import Unfit, column_text

CATEGORIES = {"text": "S", "varchar": "S", "bool": "B", "date": "D", "timestamptz": "D", "jsonb": "U", "json": "U"} | {
    "time": "D", "timetz": "D", "timestamp": "D", "daterange": "R", "tsrange": "R",
    "bytea": "U", "hstore": "U", "mood": "E", "uuid": "U"
} | dict.fromkeys(("int2", "int4", "int8", "numeric", "float4", "float8", "money"), "N")  # fmt: skip


def column(name: str) -> ColumnType:
    element = name.removesuffix("[]")
    if element != name:
        return ColumnType(name, name, "_" + element, "A", element, CATEGORIES[element])
    return ColumnType(name, name, name, CATEGORIES[name])


@pytest.mark.parametrize(
    "text", ["{2026-01-01}", "[0:0]={2026-01-01}", " [-1:0][+1:1] = {{2026-01-01},{2026-01-02}}"]
)
def test_an_array_may_be_a_text_with_its_dimensions(text: str) -> None:
    assert column_text(text, column("date[]")) == text
    for other_text in (text.replace("2026-01-01", "today"), f"{{}}{text.partition('{')[0]}x={{2026-01-01}}"):
        with pytest.raises(Unfit):
            column_text(other_text, column("date[]"))


@pytest.mark.parametrize("text", ["1" * 200_000 + "x", "1." * 100_000, "[1]" * 60_000, " " * 200_000])
@pytest.mark.parametrize("name", ["float8", "int8", "numeric", "date[]", "float8[]"])
def test_no_text_takes_long(text: str, name: str) -> None:
    with contextlib.suppress(Unfit):
        key_form(column_text(text, column(name)), column(name))


@pytest.mark.parametrize(
    ("value", "name", "text"),
    [
        ("1560704964.331047", "numeric", "1560704964.331047"),
        ("18446744073709551616", "numeric", "18446744073709551616"),
        ("123456789012.3456", "numeric", "123456789012.3456"),
        ("1e30", "text", "1" + "0" * 30),
        ("1" + "0" * 30, "text", "1" + "0" * 30),
        ("1.10", "text", "1.10"),
        ("1.10", "numeric", "1.10"),
        ("-1e-3", "text", "-0.001"),
        ("1e99999", "numeric", "1E+99999"),
        ("9" * 1500, "numeric", "9" * 1500),
        ("9" * 5000, "numeric", "9" * 5000),
        ("1.0", "int4", "1"),
        ("2e3", "int8", "2000"),
        ("16777216", "float4", "16777216"),
        ("0.1", "float4", "0.1"),
        ("9007199254740993.5", "float8", "9007199254740993.5"),
        ("true", "bool", "true"),
        ("false", "text", "false"),
        ("null", "jsonb", None),
        ('"abc"', "jsonb", '"abc"'),
        ('"123"', "jsonb", '"123"'),
        ('"null"', "jsonb", '"null"'),
        ("5", "jsonb", "5"),
        ("true", "json", "true"),
        ('{"a": [1.10, 18446744073709551616]}', "jsonb", '{"a":[1.10,18446744073709551616]}'),
        ('"a"', "uuid", "a"),
        ('"YWI="', "bytea", "\\x6162"),
        ('"\\\\x6162"', "bytea", "\\x6162"),
        ('""', "bytea", "\\x"),
        ('{"a": "1", "b": null, "q\\"": "\\\\"}', "hstore", '"a"=>"1","b"=>NULL,"q\\""=>"\\\\"'),
        ('{"a": 1}', "text", '{"a":1}'),
        ('["a", null, "NULL", "{"]', "text[]", '{"a",NULL,"NULL","{"}'),
        ("[[1, 2], [3, 4]]", "int4[]", '{{"1","2"},{"3","4"}}'),
        ('[{"a": 1}, "x", [1]]', "jsonb[]", '{"{\\"a\\":1}","\\"x\\"","[1]"}'),
        ('"{1,2}"', "int4[]", "{1,2}"),
        ("[]", "int4[]", "{}"),
        ("[[], []]", "jsonb[]", '{"[]","[]"}'),
    ],
)  # fmt: skip
def test_a_value_becomes_the_text_of_its_column(value: str, name: str, text: str | None) -> None:
    assert column_text(exact_json.loads(value), column(name)) == text


@pytest.mark.parametrize(
    ("value", "name"),
    [
        ("1.5", "int4"),
        ("[[], []]", "int4[]"),
        ("[[[]]]", "text[]"),
        ('"16777217"', "float4"),
        ("1.6777217e7", "float4"),
        ("1e99999", "float8"),
        ('"9007199254740993"', "float8"),
        ('["9007199254740993"]', "float8[]"),
        ('"[02/03/04,2026-07-01)"', "daterange"),
        ('"[2026-07-01T12:00:00,2026-07-02T12:00:00+02:00)"', "tsrange"),
        ('"1,5"', "money"),
        ("16777217", "float4"),
        ("9007199254740993", "float8"),
        ("1" + "0" * 900, "float8"),
        ("1", "bool"),
        ("true", "int4"),
        ("5", "date"),
        ("5", "uuid"),
        ("5", "bytea"),
        ('"not base64!"', "bytea"),
        ("{}", "int4"),
        ("[]", "int4"),
        ('{"a": 1}', "hstore"),
        ("[1, [2]]", "int4[]"),
        ("5", "int4[]"),
        ('"a\\u0000"', "text"),
    ],
)
def test_a_value_that_the_column_does_not_have_is_refused_without_being_named(value: str, name: str) -> None:
    with pytest.raises(Unfit) as caught:
        column_text(exact_json.loads(value), column(name))
    assert value.strip('"') not in str(caught.value)


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**60), max_value=10**60))
def test_numbers_keep_every_digit(number: Decimal) -> None:
    value = exact_json.loads(str(number).replace("E+", "e+"))
    text = column_text(value, column("numeric"))
    assert text is not None
    assert Decimal(text) == number
    assert "E" not in text


@given(number=st.integers(-(2**70), 2**70), name=st.sampled_from(["float4", "float8"]), is_text=st.booleans())
def test_a_whole_number_is_written_to_a_floating_point_column_as_it_is_or_refused(
    number: int, name: str, *, is_text: bool
) -> None:
    bits = 32 if name == "float4" else 64
    for text in (str(number), f"{number}.00", f"{Decimal(number):E}"):
        value = text if is_text else exact_json.loads(text)
        try:
            column_value = column_text(value, column(name))
        except Unfit:
            assert nearest(number, bits) != number
        else:
            assert column_value is not None
            assert Decimal(column_value) == number
            digits = len(Decimal(text).as_tuple().digits)
            assert (
                nearest(number, bits) == number
                or Decimal(f"{nearest(number, bits):.{digits - 1}e}") == number
            )


@given(
    st.floats(allow_nan=False, allow_infinity=False)
    | st.floats(width=32, allow_nan=False, allow_infinity=False)
)
def test_the_shortest_text_of_a_floating_point_number_is_written(number: float) -> None:
    for text in (repr(number), f"{Decimal(repr(number)):E}"):
        assert column_text(text, column("float8")) == text
        column_value = column_text(exact_json.loads(text), column("float8"))
        assert column_value is not None
        assert float(column_value) == number


@given(st.dates(), st.times(), st.timezones())
def test_every_date_and_time_of_iso_8601_is_written_as_it_is(day: date, hour: time, zone: tzinfo) -> None:
    local_time = datetime.combine(day, hour)
    with_zone = [local_time.replace(tzinfo=UTC), local_time.replace(tzinfo=zone)]
    for name, moments in {
        "timestamp": [local_time, *with_zone],
        "timestamptz": [local_time, *with_zone],
    }.items():
        for text in [timestamp.isoformat() for timestamp in moments]:
            assert column_text(text, column(name)) == text
            assert column_text(f"{{{text}}}", column(f"{name}[]")) == f"{{{text}}}"
    assert column_text(day.isoformat(), column("date")) == day.isoformat()
    assert column_text(hour.isoformat(), column("time")) == hour.isoformat()


@pytest.mark.parametrize(
    "name", ["date", "time", "timetz", "timestamp", "timestamptz", "daterange", "tsrange"]
)
@given(
    text=st.text(min_size=1)
    | st.sampled_from(["today", "now", "allballs", "02/03/04", "1 July 2026", "epoch"])
)
def test_other_texts_are_no_dates_and_times(name: str, text: str) -> None:
    assume(not any(sign.isdigit() for sign in text) or "/" in text or "July" in text)
    assume(text.strip('[](){}," \n\t').strip())
    assume(text.strip().lower() not in {"empty", "null", "infinity", "-infinity"})
    with pytest.raises(Unfit):
        column_text(text, column(name))
    with pytest.raises(Unfit):
        column_text([text], column(f"{name}[]"))


@given(
    st.recursive(st.none() | st.booleans() | st.integers() | st.decimals(-1e20, 1e20) | st.text(), st.lists)
)
def test_json_columns_get_the_same_value(value: Any) -> None:
    text = column_text(value, column("jsonb"))
    assert (None if text is None else exact_json.loads(text)) == value


@pytest.mark.parametrize(
    ("texts", "array"),
    [(["a", None, 'b"\\,'], '{"a",NULL,"b\\"\\\\,"}'), (["NULL", ""], '{"NULL",""}'), ([], "{}")],
)
def test_an_array_quotes_its_elements(texts: list[str | None], array: str) -> None:
    assert array_text(texts) == array
