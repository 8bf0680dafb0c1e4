"""The text of a pipe is checked as `hifi check` checks a file, and against what the stream is."""

from hifi_manage.pipe_text import read_pipe

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


def test_a_property_that_names_a_class_is_refused_at_its_line() -> None:
    text = PIPE.replace(b"table: a.b}", b"table: a.b,\n      properties: {py-io-impl: planted.Planted}}")
    [problem] = read_pipe(text, {}, coloured=False)[1]
    assert (problem.line, problem.where) == (8, "destinations[0].settings.properties.py-io-impl")
