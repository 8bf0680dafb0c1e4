"""The text of a pipe is checked as `hifi check` checks a file, and against what the stream is."""

import time

import orjson
import pytest

from hifi_manage import pipe_text
from hifi_manage.pipe_text import MAX_BYTES, MAX_DEPTH, MAX_VALUES, read_pipe

PIPE = b"""\
pipe: orders
source: {keys: [{env: KEY}]}
enrich: {fields: {id: int}}
destinations:
  - name: lake
    kind: iceberg
    settings: {warehouse: /srv/lake, table: a.b}
"""


def test_a_pipe_that_would_lose_events_of_a_colour_is_refused() -> None:
    assert read_pipe(PIPE, {}, coloured=True)[1] == []
    upsert = PIPE.replace(b"table: a.b}", b"table: a.b, mode: upsert, key: [id]}")
    assert read_pipe(upsert, {}, coloured=False)[1] == []
    [problem] = read_pipe(upsert, {}, coloured=True)[1]
    assert problem.where == "destinations"
    assert "orders/lake: with `mode: upsert` two services lake" in problem.message


def test_a_step_may_read_a_pipe_that_is_declared_already() -> None:
    step_text = PIPE.replace(
        b"source: {keys: [{env: KEY}]}",
        b"source: {kind: step, from: flights, key: {id: int}, window: {tumbling: 1m}, fields: {n: count(*)}}",
    )
    flights_pipe = read_pipe(PIPE.replace(b"pipe: orders", b"pipe: flights"), {}, coloured=False)[0]
    assert flights_pipe is not None
    assert read_pipe(step_text, {"flights": flights_pipe}, coloured=False)[1] == []
    [problem] = read_pipe(step_text, {}, coloured=False)[1]
    assert (problem.where, "'flights' is not declared" in problem.message) == ("source.from", True)


TABLES = b"""\
pipe: orders
source:
  kind: debezium
  connect: http://127.0.0.1:9
  bootstrap: 127.0.0.1:9092
  topic: changes
  database: {host: 127.0.0.1, name: shop, user: hifi, password_file: /etc/hifi/shop-password}
  tables: [public.customers]
destinations:
  - name: search
    url: http://127.0.0.1:9/customers
"""


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        (PIPE, "source.keys[0]", "another pipe has the same write key; give each its own"),
        (
            TABLES,
            "source.topic",
            "another pipe has its changes written to the topic 'changes' too; give each its own topic",
        ),
    ],
)
def test_what_a_hidden_pipe_has_is_refused_without_its_name(
    text: bytes, where: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HIFI_EGRESS_ALLOW", "loopback")
    hidden_pipe = read_pipe(text.replace(b"pipe: orders", b"pipe: payroll"), {}, coloured=False)[0]
    assert hidden_pipe is not None
    pipes = {"payroll": hidden_pipe}
    [problem] = read_pipe(text, pipes, coloured=False, hidden_names={"payroll"})[1]
    assert (problem.where, problem.message) == (where, message)
    [problem] = read_pipe(text, pipes, coloured=False)[1]
    assert "the pipe 'payroll' has" in problem.message


def test_a_property_that_names_a_class_is_refused_at_its_line() -> None:
    text = PIPE.replace(b"table: a.b}", b"table: a.b,\n      properties: {py-io-impl: planted.Planted}}")
    [problem] = read_pipe(text, {}, coloured=False)[1]
    assert (problem.line, problem.where) == (8, "destinations[0].settings.properties.py-io-impl")


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        (b"pipe: a\n\xff", (2, 1), "not UTF-8: byte 8 is 0xff"),
        ("pipe: \ud800".encode("utf-8", "surrogatepass"), (1, 1), "not UTF-8: byte 6 is 0xed"),
        (b"pipe: a\nsource: \x00", (2, 9), "not YAML: the character U+0000 is not allowed"),
        (b"pipe: \x1b[2J", (1, 7), "not YAML: the character U+001B is not allowed"),
        (b"pipe: !!bool x", (1, 1), "not YAML: 'x' is no value of its tag"),
        (b"pipe: !other x", (1, 7), "not YAML: could not determine a constructor for the tag '!other'"),
        (b"pipe: 2001-99-99", (1, 1), "not YAML: month must be in 1..12"),
        (b"pipe: " + b"9" * 5000, (1, 1), "not YAML: a number has more than 4,300 digits; write it as text"),
        (b"pipe: &a [*a]", (1, 11), "aliases of YAML are not accepted here"),
        (b"[" * 70 + b"]" * 70, (1, MAX_DEPTH + 1), "nested deeper than 64 levels"),
    ],
)
def test_a_text_that_is_no_yaml_is_refused_at_its_place(
    text: bytes, position: tuple[int, int], message: str
) -> None:
    pipe, [problem] = read_pipe(text, {}, coloured=False)
    assert pipe is None
    assert (problem.line, problem.column) == position
    assert problem.message.startswith(message)


@pytest.mark.slow
def test_deep_nesting_is_refused_before_it_takes_time() -> None:
    start_cpu_s = time.process_time()
    for text in (b"[" * 250_000, b"{a: " * 60_000, b"- " * 1000):
        assert "nested deeper" in read_pipe(text, {}, coloured=False)[1][0].message
    assert time.process_time() - start_cpu_s < 20  # without the limit more than an hour


def flat_keys(count: int) -> bytes:
    return b"pipe: a\n" + b"".join(b"k%d: 1\n" % number for number in range(count))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "line"),
    [
        (b"pipe: a\nx: [" + b"1," * 120_000 + b"1]", 2),
        (b"pipe: a\nx: [" + b"[]," * 60_000 + b"1]", 2),
        (b"pipe: a\nx:\n" + b"- 1\n" * 60_000, MAX_VALUES - 2),
        (flat_keys(20_000), MAX_VALUES // 2),
    ],
)
def test_a_flat_text_with_many_values_is_refused_at_its_place_and_not_loaded(
    text: bytes, line: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipe_text, "check_folder", None)
    assert len(text) <= MAX_BYTES
    pipe, [problem] = read_pipe(text, {}, coloured=False)
    assert pipe is None
    assert "more than 10,000 keys and values" in problem.message
    assert "`hifi apply`" in problem.message
    assert problem.line == line


@pytest.mark.parametrize("text", [b"#" * (MAX_BYTES + 1), flat_keys(100_000), b"[1," * 400_000])
def test_a_text_above_the_size_is_refused_unread(text: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipe_text, "YAML", None)
    pipe, [problem] = read_pipe(text, {}, coloured=False)
    assert pipe is None
    assert problem.message.startswith("larger than 256 KiB")


@pytest.mark.slow
def test_a_version_that_was_declared_may_be_larger_as_its_schemas_make_it() -> None:
    names = [f"name-{number}" for number in range(MAX_VALUES)]
    text = PIPE + b"normalize: {schema: " + orjson.dumps({"enum": names}) + b"}\n"
    assert "more than" in read_pipe(text, {}, coloured=False)[1][0].message
    pipe, problems = read_pipe(text, {}, coloured=False, declared=True)
    assert problems == []
    assert pipe is not None
    assert pipe.normalize.json_schema == {"enum": names}
