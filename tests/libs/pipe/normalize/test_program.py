"""The `normalize` section of a pipe changes data exactly as declared, or rejects the event. No Kafka."""

import hashlib
import hmac
import re
import time
from datetime import UTC, datetime
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi.pipe.model import Pipe
from hifi.pipe.normalize.json_schema import validator
from hifi.pipe.normalize.program import NormalizeProgram, compile_pipe
from hifi.runtime.errors import Misconfigured, Rejected
from hifi_normalize.functions.user_function import load_function

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=15,
)


def program(enrich: dict[str, Any] | None = None, **normalize: Any) -> NormalizeProgram:
    return compile_pipe(
        Pipe.model_validate(
            {
                "pipe": "p",
                "source": {"keys": [{"sha256": "0" * 64}]},
                "normalize": normalize,
                "enrich": enrich or {},
                "destinations": [{"name": "d", "url": "http://127.0.0.1:9/"}],
            }
        )
    )


def run(text: bytes | str, **normalize: Any) -> bytes | None:
    data = text.encode() if isinstance(text, str) else text
    normalizer = program(**normalize)
    if normalizer.function is None:
        return normalizer.run(data, b"application/json")
    return normalizer.finish(
        load_function(normalizer.function)(normalizer.prepare(data, b"application/json"))
    )


def rejected(text: bytes | str, **normalize: Any) -> tuple[str, str]:
    with pytest.raises(Rejected) as caught:
        run(text, **normalize)
    return caught.value.reason, caught.value.pointer


@pytest.mark.parametrize("data", [b"", b"\xff\0", b"{", b'{"a": 1}'])
def test_a_pipe_that_declares_nothing_passes_bytes_on(data: bytes) -> None:
    assert program().run(data, b"image/png") is data
    assert program().run(None, None) is None


def test_fields_without_a_rule_are_unchanged() -> None:
    text = '{"big":123456789012345678901234567890,"f":1.10,"e":1E5,"s":"\\u00e9\\/","in":{ "x" : 1.0 },"ssn":"1"}'
    assert run(text, mask={"ssn": "drop"}) == text.replace(',"ssn":"1"', "").encode()
    assert (
        run('{"in":{"x":1.10,"y":{"ssn":2,"z":1e1}}}', mask={"in.y.ssn": "drop"})
        == b'{"in":{"x":1.10,"y":{"z":1e1}}}'
    )


def test_fields_are_mapped_from_the_data_as_it_was() -> None:
    assert (
        run('{"a":1,"b":{"c":2.50},"d":3}', fields={"a": "d", "d": "a", "n.x": "b.c"}, keep="mapped")
        == b'{"a":3,"d":1,"n":{"x":2.50}}'
    )
    assert run('{"a":1,"b":2}', fields={"c": "a"}) == b'{"a":1,"b":2,"c":1}'
    assert run('{"a":1}', fields={"c": "none.there", "a.b": "a"}, keep="mapped") == b'{"a":{"b":1}}'
    assert run('{"a.b":1}', fields={"c": "a.b"}, keep="mapped") == b"{}"


def test_defaults_and_required_fields() -> None:
    rule = {"a": {"default": 7}, "b": {"default": [1]}}
    assert run("{}", fields=rule, keep="mapped") == b'{"a":7,"b":[1]}'
    assert run('{"a":null,"b":0}', fields=rule, keep="mapped") == b'{"a":7,"b":0}'
    assert run('{"a":null}', fields={"x": "a"}, keep="mapped") == b'{"x":null}'
    for text in ('{"b":{}}', '{"b":{"a":null}}', '{"b":3}'):
        assert rejected(text, fields={"x": {"from": "b.a", "required": True}}) == ("required", "/b/a")


def test_an_event_does_not_change_the_default_of_the_next() -> None:
    fields = {"address": {"default": {"city": None}}, "address.city": "city"}
    normalizer = program(fields=fields, keep="mapped", mask={"address.zip": "drop"})
    assert normalizer.run(b'{"city":"Rome"}', b"application/json") == b'{"address":{"city":"Rome"}}'
    assert normalizer.run(b"{}", b"application/json") == b'{"address":{"city":null}}'


def test_a_field_below_a_value_that_is_not_an_object_is_rejected() -> None:
    assert rejected('{"a":[1],"b":2}', fields={"a.x": "b"}) == ("mapping-failed", "/a")
    assert run('{"a":null,"b":2}', fields={"a.x": "b"}) == b'{"a":{"x":2},"b":2}'


CASTS = [
    ("string", "1.10", b'"1.10"'),
    ("string", "true", b'"true"'),
    ("string", '"x"', b'"x"'),
    ("string", "[1]", None),
    ("integer", "12345678901234567890123", b"12345678901234567890123"),
    ("integer", '"42"', b"42"),
    ("integer", '" -7 "', b"-7"),
    ("integer", '"+7"', b"7"),
    ("integer", '"007"', b"7"),
    ("integer", "5.0", b"5"),
    ("integer", "1e3", b"1000"),
    ("integer", "5.5", None),
    ("integer", "true", None),
    ("integer", '""', None),
    ("integer", '"1_000"', None),
    ("integer", "1e999", None),
    ("integer", '"٣"', None),
    ("number", '"1.10"', b"1.10"),
    ("number", "1.10", b"1.10"),
    ("number", '"1e-7"', b"1e-7"),
    ("number", '"NaN"', None),
    ("number", '"0x1"', None),
    ("number", "{}", None),
    ("number", "false", None),
    ("boolean", "true", b"true"),
    ("boolean", '"False"', b"false"),
    ("boolean", "1", b"true"),
    ("boolean", '"0"', b"false"),
    ("boolean", "2", None),
    ("boolean", '"yes"', None),
    ("boolean", "1.0", None),
    ("integer", "null", b"null"),
]


@pytest.mark.parametrize(("cast", "value", "expected"), CASTS)
def test_casts_are_exact_or_rejected(cast: str, value: str, expected: bytes | None) -> None:
    text = '{"v":' + value + "}"
    if expected is None:
        assert rejected(text, fields={"v": {"cast": cast}}) == ("cast", "/v")
    else:
        assert run(text, fields={"v": {"cast": cast}}) == b'{"v":' + expected + b"}"


TIMES = [
    ({}, '"2026-01-31T23:59:59.5+02:00"', "2026-01-31T21:59:59.500000Z"),
    ({}, '"2026-01-31"', "2026-01-31T00:00:00.000000Z"),
    ({"zone": "America/New_York"}, '"2013-07-01 08:00"', "2013-07-01T12:00:00.000000Z"),
    ({"zone": "America/New_York"}, '"2013-01-01T08:00:00Z"', "2013-01-01T08:00:00.000000Z"),
    ({"format": "epoch_s"}, "1357034400", "2013-01-01T10:00:00.000000Z"),
    ({"format": "epoch_s"}, '"1.5"', "1970-01-01T00:00:01.500000Z"),
    ({"format": "epoch_ms"}, "-1", "1969-12-31T23:59:59.999000Z"),
    ({"format": "epoch_us"}, "1357034400123456", "2013-01-01T10:00:00.123456Z"),
    (
        {"format": "%d/%m/%Y %H:%M", "zone": "America/New_York"},
        '"01/07/2013 08:00"',
        "2013-07-01T12:00:00.000000Z",
    ),
    ({"format": "%Y%m%d"}, "20130701", "2013-07-01T00:00:00.000000Z"),
    ({}, '"2016-12-31T23:59:60Z"', "2017-01-01T00:00:00.000000Z"),
    ({}, '"2016-12-31 23:59:60.25"', "2017-01-01T00:00:00.250000Z"),
    ({}, '"20170101T005960+01"', "2017-01-01T00:00:00.000000Z"),
    ({}, '"2026-07-01T10:10:10.123460Z"', "2026-07-01T10:10:10.123460Z"),
    ({}, '"2026-07-01t12:00:00z"', "2026-07-01T12:00:00.000000Z"),
    ({}, '"2016-12-31T23:59:61Z"', None),
    ({}, '"2016-12-31T23:60:00Z"', None),
    *(
        ({"zone": zone} | rule, f'"{local}"', utc)
        for zone, local, utc in (
            ("Europe/Berlin", "2026-03-29 01:59", "2026-03-29T00:59:00.000000Z"),
            ("Europe/Berlin", "2026-03-29 02:30", "2026-03-29T01:30:00.000000Z"),  # skipped
            ("Europe/Berlin", "2026-03-29 03:30", "2026-03-29T01:30:00.000000Z"),
            ("Europe/Berlin", "2026-10-25 02:30", "2026-10-25T00:30:00.000000Z"),  # twice
            ("America/New_York", "2026-03-08 02:30", "2026-03-08T07:30:00.000000Z"),
            ("America/New_York", "2026-11-01 01:30", "2026-11-01T05:30:00.000000Z"),
            ("Australia/Lord_Howe", "2026-10-04 02:15", "2026-10-03T15:45:00.000000Z"),  # by half an hour
            ("Pacific/Apia", "2011-12-30 12:00", "2011-12-30T22:00:00.000000Z"),  # a day
        )
        for rule in ({}, {"format": "%Y-%m-%d %H:%M"})
    ),
    ({}, '"0001-01-01T00:00:00+05:00"', None),
    ({}, '"soon"', None),
    ({}, "true", None),
    ({"format": "epoch_s"}, "1e300", None),
    ({"format": "epoch_s"}, "1e999990", None),
    ({"format": "epoch_s"}, '"1e1000000"', None),
    ({"format": "epoch_ms"}, "-1e999999999", None),
    ({"format": "epoch_us"}, "1" * 5000, None),
    ({"format": "epoch_s"}, "1e-99", "1970-01-01T00:00:00.000000Z"),
    ({"format": "epoch_s"}, '"NaN"', None),
    ({"format": "%d/%m/%Y"}, '"2013-01-01"', None),
    ({}, '"2026-07-01T12:00:00.999999999Z"', "2026-07-01T12:00:00.999999Z"),
    ({"format": "epoch_us"}, "1782907200123456.9", "2026-07-01T12:00:00.123456Z"),
    ({"format": "epoch_s"}, '"1782907200.1234569999999999999"', "2026-07-01T12:00:00.123456Z"),
    ({"format": "epoch_s"}, "-0.0000009", "1969-12-31T23:59:59.999999Z"),
    *(
        ({"zone": "America/New_York", "format": f"%d %b %Y %H:%M %Z{offset_format}"}, f'"{text}"', utc)
        for text, offset_format, utc in (
            ("01 Jul 2026 12:00 GMT", "", "2026-07-01T12:00:00.000000Z"),
            ("01 Jul 2026 12:00 utc", "", "2026-07-01T12:00:00.000000Z"),
            ("01 Jul 2026 12:00 UTC+0200", "%z", "2026-07-01T10:00:00.000000Z"),
            ("01 Jul 2026 12:00 EDT", "", None),
            ("01 Jul 2026 12:00", "", None),
        )
    ),
    ({"zone": "America/New_York", "format": "%Y%m%d %%Z"}, '"20260701 %Z"', "2026-07-01T04:00:00.000000Z"),
]


@pytest.mark.parametrize(("rule", "value", "expected"), TIMES)
def test_times_become_utc_with_microseconds(rule: dict[str, str], value: str, expected: str | None) -> None:
    text = '{"t":' + value + "}"
    if expected is None:
        assert rejected(text, fields={"t": {"time": rule}}) == ("time", "/t")
    else:
        assert run(text, fields={"t": {"time": rule}}) == b'{"t":"' + expected.encode() + b'"}'


def test_the_zone_of_a_text_is_read_alike_whatever_the_zone_of_the_host_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fields = {"t": {"time": {"format": "%d %b %Y %H:%M %Z"}}}
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        assert rejected('{"t":"01 Jul 2026 12:00 CEST"}', fields=fields) == ("time", "/t")
    finally:
        monkeypatch.undo()
        time.tzset()


FORMATS = [
    "%d/%m/%Y %H:%M",
    "%Y-%m-%dT%H:%M:%SZ",
    "%Y.%m.%d",
    "%H:%M %d-%m-%Y",
    "%d-%m %H:%M",
    "%Y-%m-%d %M",
    "%Y%m%d",
]


@pytest.mark.parametrize("declared", FORMATS)
@given(texts=st.data())
def test_a_format_reads_what_strptime_reads(declared: str, texts: st.DataObject) -> None:
    number = st.sampled_from(
        ["0", "00", "1", "7", "07", " 7", "12", "13", "24", "31", "32", "59", "60", "61", "٣"]
    )
    year = st.sampled_from(["2013", "0001", "0000", "2012", "13", "9999"])
    text = re.sub("%(.)", lambda directive: texts.draw(year if directive[1] == "Y" else number), declared)
    text = texts.draw(st.sampled_from([text, text.lower(), text.replace(" ", "  "), text + "x", f" {text} "]))
    try:
        expected = datetime.strptime(text.strip(), declared).replace(tzinfo=UTC)
    except ValueError:
        assert rejected(orjson.dumps({"t": text}), fields={"t": {"time": {"format": declared}}}) == (
            "time",
            "/t",
        )
        return
    output = run(orjson.dumps({"t": text}), fields={"t": {"time": {"format": declared}}})
    assert datetime.fromisoformat(orjson.loads(output or b"")["t"]) == expected


@given(st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=st.timezones()))  # noqa: DTZ001
def test_any_time_keeps_its_moment(timestamp: datetime) -> None:
    offset = timestamp.utcoffset()
    if offset is None or offset.microseconds or offset.seconds % 60:
        return
    text = run(orjson.dumps({"t": timestamp.isoformat()}), fields={"t": {"time": {}}})
    assert datetime.fromisoformat(orjson.loads(text or b"")["t"]) == timestamp.astimezone(UTC)


def test_masks_drop_redact_and_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASK_KEY", "secret")
    masks = {"a": "drop", "b": "redact", "c": {"hash": {"env": "MASK_KEY"}}, "none": "redact", "x.y": "drop"}
    result = orjson.loads(run('{"a":1,"b":null,"c":"Zoë","d":2,"x":{"y":1}}', mask=masks) or b"")
    digest = hmac.new(b"secret", "Zoë".encode(), hashlib.sha256).hexdigest()
    assert result == {"b": "[redacted]", "c": digest, "d": 2, "x": {}}


def test_equal_values_have_equal_hashes_however_they_are_written(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASK_KEY", "secret")
    mask = {"v": {"hash": {"env": "MASK_KEY"}}}

    def hashed(value: str) -> str:
        return str(orjson.loads(run('{"v":' + value + "}", mask=mask) or b"")["v"])

    assert hashed('"\\u00e9"') == hashed('"é"')
    assert hashed('{"a":1, "b":[2]}') == hashed('{ "b":[ 2 ],"a":1}')
    assert len({hashed(value) for value in ('"a"', '"b"', "1", "true", "[1]", "{}")}) == 6
    assert run('{"v":null}', mask=mask) == b'{"v":null}'


def test_a_mask_reaches_into_arrays() -> None:
    text = '{"p":[{"name":"A","n":1.0},{"name":"B"},3,[{"name":"C"}]]}'
    assert run(text, mask={"p.name": "drop"}) == b'{"p":[{"n":1.0},{},3,[{}]]}'


def test_masks_come_after_mapping_and_a_copy_is_not_the_original() -> None:
    assert (
        run('{"p":{"s":1,"t":2}}', fields={"q": "p"}, mask={"q.s": "drop"})
        == b'{"p":{"s":1,"t":2},"q":{"t":2}}'
    )


def test_two_fields_from_one_object_do_not_share_it() -> None:
    text = '{"p":{"s":1,"t":2}}'
    expected = b'{"p":{"s":1,"t":2},"z":2,"q":{"t":2},"r":{"s":1,"t":2}}'
    assert run(text, fields={"z": "p.t", "q": "p", "r": "p"}, mask={"q.s": "drop"}) == expected


def test_names_that_enrich_adds_are_taken_out() -> None:
    enrich = {"derive": {"late": "1", "route": "'x'"}}
    normalizer = program(enrich)
    assert normalizer.run(b'{"a":1.0, "late":1,"in":{"late":2}}', None) == b'{"a":1.0,"in":{"late":2}}'
    text = b'{ "a" : 1 }'
    assert normalizer.run(text, None) is text
    assert program(enrich, fields={"late": "a"}).run(b'{"a":1}', None) == b'{"a":1}'


SCHEMA = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "integer"}, "list": {"items": {"maxLength": 3}}, "a/b": {"minimum": 3}},
}


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        ('{"id":"Zaphod"}', "/id"),
        ("{}", ""),
        ('{"id":1,"list":["ok","Zaphod"]}', "/list/1"),
        ('{"id":1,"a/b":2}', "/a~1b"),
        ("3", ""),
    ],
)
def test_data_that_fails_its_schema_is_rejected_with_the_place_and_without_the_value(
    text: str, pointer: str
) -> None:
    with pytest.raises(Rejected) as caught:
        run(text, schema=SCHEMA)
    assert (caught.value.reason, caught.value.pointer) == ("schema", pointer)
    assert "Zaphod" not in caught.value.detail


LONG_DECIMAL = "0.1234567890123456789012345678901234567891"


@pytest.mark.parametrize(
    ("number", "rule"),
    [
        ("1e400", {"type": "integer", "minimum": 10, "multipleOf": 5}),
        ("-1e400", {"type": "number", "maximum": 0}),
        ("1" * 400, {"type": "integer", "multipleOf": 1}),
        ("1." + "0" * 40, {"type": "integer", "const": 1}),
        (LONG_DECIMAL, {"type": "number", "exclusiveMinimum": 0.1, "not": {"multipleOf": 0.01}}),
        ("1234567890123456789012345678.99", {"multipleOf": 0.01, "not": {"type": "integer"}}),
        ("1e-400", {"exclusiveMinimum": 0, "not": {"type": "integer"}}),
        ("9007199254740993", {"not": {"maximum": 9007199254740992}}),
        ("9007199254740993.5", {"not": {"multipleOf": 1}, "exclusiveMinimum": 9007199254740993}),
        ("1" * 300_000, {"type": "integer", "multipleOf": 3}),
        ("1e999999999999999", {"type": "integer", "multipleOf": 10, "not": {"multipleOf": 3}}),
    ],
)
def test_numbers_that_a_double_cannot_hold_are_judged_exactly_and_keep_their_digits(
    number: str, rule: dict[str, Any]
) -> None:
    text = f'{{"id": 1, "n":{number}}}'
    schema = {"properties": {"n": rule}}
    assert run(text, schema=schema) == text.encode()
    assert f'"n":{number}'.encode() in (run(text, schema=schema, fields={"id": "id"}) or b"")
    with pytest.raises(Rejected) as caught:
        run(text, schema={"properties": {"n": {"not": rule}}})
    pointer = "/n" if len(number) < 4_300 else ""
    assert (caught.value.reason, caught.value.pointer) == ("schema", pointer)


@given(
    st.decimals(allow_nan=False, allow_infinity=False, places=None),
    st.sampled_from(["1", "3", "0.1", "0.25", "100", "7e3"]),
)
def test_multiples_are_judged_as_fractions_say(number: Decimal, divisor: str) -> None:
    text = f'{{"padding":"{"9" * 16}", "n":{number:e}}}'.encode()
    is_multiple = (Fraction(number) / Fraction(divisor)).denominator == 1
    validate = validator({"properties": {"n": {"multipleOf": orjson.loads(divisor)}}})
    if is_multiple:
        validate(text)
    else:
        with pytest.raises(Rejected, match="the value is not a multiple of"):
            validate(text)


def test_data_that_satisfies_its_schema_stays_as_it_was() -> None:
    text = '{"id" : 12345678901234567890123, "list":["abc"] }'
    assert run(text, schema=SCHEMA) == text.encode()


@pytest.mark.parametrize("data", [b"", b"{", b'{"a":\xff}', b"NaN", b'{"a":1}x', b"[" * 100_000])
def test_what_is_no_json_is_rejected_where_json_is_needed(data: bytes, module: str) -> None:
    function = {"function": f"{module}:double"}
    several: list[dict[str, Any]] = [
        {"schema": {}},
        {"fields": {"a": "b"}},
        {"mask": {"a": "drop"}},
        function,
    ]
    for rules in several:
        assert rejected(data, **rules)[0] == "not-json"
    with pytest.raises(Rejected) as caught:
        program(mask={"a": "drop"}).run(b"{}", b"text/csv")
    assert caught.value.reason == "not-json"


@pytest.mark.parametrize("data", ["3", "[{}]", '"x"', "null"])
def test_json_that_is_no_object_is_rejected_where_fields_are_needed(data: str) -> None:
    assert rejected(data, fields={"a": "b"}) == ("not-an-object", "")
    assert rejected(data, mask={"a": "drop"}) == ("not-an-object", "")


@given(JSON)
def test_any_json_is_passed_or_rejected_and_untouched_parts_mean_the_same(value: Any) -> None:
    text = (
        orjson.dumps({"keep": value, "drop": value}, option=orjson.OPT_PASSTHROUGH_DATETIME)
        if small(value)
        else b"{}"
    )
    result = msgspec.json.decode(run(text, mask={"drop": "drop"}, fields={"copy": "keep"}) or b"")
    document = msgspec.json.decode(text)
    assert result == ({"keep": document["keep"], "copy": document["keep"]} if document else {})


def small(value: Any) -> bool:
    """Whether orjson can encode a value: integers of at most 64 bits."""
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True


FUNCTIONS = """
import math
def double(data): data["v"] *= 2; return data
def boom(data): raise ValueError(f"secret {data}")
def leave(data): raise SystemExit(3)
def nothing(data): pass
def odd(data): return {"x": object()}
def nan(data): return {"x": [float("nan")], "y": None}
def null(data): return {"x": None}
async def later(data): return data
value = 3
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"functions_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(FUNCTIONS)
    (tmp_path / "broken_functions.py").write_text("def f(data): return data\nraise RuntimeError('broken')")
    monkeypatch.setenv("HIFI_PIPES_FUNCTION_FOLDERS", str(tmp_path))
    return name


def test_a_function_gets_the_data_and_gives_the_new_data(module: str) -> None:
    assert run('{"v":1.5}', function=f"{module}:double") == b'{"v":3.0}'
    assert run("{}", function=f"{module}:null", mask={"x": "drop"}) == b"{}"


@pytest.mark.parametrize("name", ["boom", "leave", "nothing", "odd", "nan", "double"])
@pytest.mark.filterwarnings("ignore:coroutine")
def test_a_function_that_fails_rejects_the_event_and_tells_no_data(module: str, name: str) -> None:
    with pytest.raises(Rejected) as caught:
        run('{"secret":1}', function=f"{module}:{name}")
    assert caught.value.reason == "function-failed"
    assert "secret" not in caught.value.detail
    if name == "boom":
        assert "ValueError at line 4" in caught.value.detail


@pytest.mark.parametrize("name", ["none", "value"])
def test_a_function_that_cannot_be_used_breaks_the_pipe(module: str, name: str) -> None:
    for path in (f"{module}:{name}", "no_such_module_here:f"):
        with pytest.raises(Misconfigured):
            program(function=path)
        with pytest.raises(Misconfigured):
            load_function(path)


def test_compiling_a_pipe_runs_nothing_of_the_module_of_its_function(module: str) -> None:
    assert program(function="broken_functions:f").function == "broken_functions:f"
    with pytest.raises(Misconfigured):
        load_function("broken_functions:f")


def test_unusable_rules_break_the_pipe() -> None:
    for rules in (
        {"schema": {"type": "no-such-type"}},
        {"schema": {"$ref": "http://127.0.0.1:9/schema.json"}},
        {"fields": {"t": {"time": {"zone": "Mars/Olympus"}}}},
        {"fields": {"t": {"time": {"format": "%Y %Y"}}}},
        {"fields": {"t": {"time": {"format": "%c%Y"}}}},
        {"mask": {"a": {"hash": {"env": "NO_SUCH_VARIABLE_HERE"}}}},
    ):
        with pytest.raises(Misconfigured):
            program(**rules)
