"""The bucket of each watched field is in the record that enrich writes, with both triggers."""

from typing import Any

import pytest
from tests.support.enrich.spark_bench import OutputRecord, SparkBench, make_headers, make_pipe

from hifi.pipe.model import Pipe
from hifi.pipe.watched_field import watch_id
from hifi.record.fields import fields, with_fields
from hifi.record.headers import IN, WATCH
from hifi.record.hop import hop
from hifi_enrich.plan.query_plan import QueryPlan


def make_watched_pipe(watch: list[dict[str, Any]], **enrich: Any) -> Pipe:
    body = make_pipe(**enrich).model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return Pipe.model_validate(body | {"watch": watch})


def buckets(pipe: Pipe, record: OutputRecord) -> list[str]:
    identifier, _, names = fields(record.headers)[WATCH].decode().partition(":")
    assert identifier == watch_id(pipe.watch)
    return names.split(",")


@pytest.fixture(params=["micro-batch", "real-time"])
def bench_of_trigger(request: pytest.FixtureRequest, bench: SparkBench) -> SparkBench:
    bench.evaluate_as(request.param)
    return bench


def test_numbers_texts_and_missing_values_have_their_buckets(bench_of_trigger: SparkBench) -> None:
    pipe = make_watched_pipe(
        [
            {"field": "score", "bounds": [-1, 0.2, 0.5]},
            {"field": "score2", "buckets": 10},
            {"field": "airline", "values": 20},
            {"field": "country", "values": ["DE", "a,b;c"]},
        ],
        fields={"score": "double", "airline": "string", "country": "string"},
        derive={"score2": "score * 2"},
    )
    expected = {
        b'{"score":-3,"airline":"LH","country":"DE"}': ["0", "m19", "LH", "DE"],
        b'{"score":-1,"airline":"a,b;c!~ \xc3\xa9","country":"a,b;c"}': [
            "1", "m8", "a%2Cb%3Bc%21%7E+%C3%A9", "a%2Cb%3Bc",
        ],
        b'{"score":0,"airline":"","country":"FR"}': ["1", "0", "", "~"],
        b'{"score":0.2,"airline":"%s"}' % (b"x" * 70): ["2", "p-9", "x" * 64, "!"],
        b'{"score":0.5,"airline":null}': ["3", "p0", "!", "!"],
        b'{"score":1e300}': ["3", "p290", "!", "!"],
        b'{"score":null}': ["!", "!", "!", "!"],
        b'{"score":"no number"}': ["!", "!", "!", "!"],
        b'{"score":"NaN"}': ["!", "!", "!", "!"],
        b"{}": ["!", "!", "!", "!"],
    }  # fmt: skip
    records = bench_of_trigger.values(pipe, list(expected))
    assert [buckets(pipe, record) for record in records] == list(expected.values())
    assert {record.to for record in records} == {"one"}
    assert {hop(record.headers).to for record in records} == {b"one"}


def test_events_that_no_destination_wants_have_no_buckets_and_no_data(bench_of_trigger: SparkBench) -> None:
    pipe = make_watched_pipe([{"field": "n", "bounds": [5]}], fields={"n": "int"}, filter="n > 1")
    delivered_record, filtered_record = bench_of_trigger.values(pipe, [b'{"n":2}', b'{"n":1}'])
    assert (buckets(pipe, delivered_record), delivered_record.value) == (["0"], b'{"n":2}')
    assert (filtered_record.to, filtered_record.value) == ("", None)
    assert WATCH not in fields(filtered_record.headers)


def test_pipes_beside_a_watched_one_are_written_as_before(bench_of_trigger: SparkBench) -> None:
    watched_pipe = make_watched_pipe([{"field": "n", "buckets": 4}], fields={"n": "int"})
    plain_pipe, derived_pipe = (
        make_pipe("plain"),
        make_pipe("derived", fields={"n": "int"}, derive={"m": "n + 1"}),
    )

    def outputs(plan: QueryPlan) -> list[tuple[Any, ...]]:
        records = [(b"k", b'{"n":1}', 1, make_headers(name)) for name in ("plain", "derived")]
        return [
            (record.value, with_fields(record.headers, {IN: None}))
            for record in bench_of_trigger.run(plan, records)
        ]

    outputs_beside_watch = outputs(bench_of_trigger.plan([watched_pipe, plain_pipe, derived_pipe]))
    assert outputs_beside_watch == outputs(bench_of_trigger.plan([plain_pipe, derived_pipe]))
    assert all(WATCH not in fields(headers) for _, headers in outputs_beside_watch)


def test_a_watched_field_that_an_event_cannot_be_read_for_refuses_no_event(
    bench_of_trigger: SparkBench,
) -> None:
    pipe = make_watched_pipe([{"field": "n", "bounds": [1]}], fields={"n": "int"})
    for record in bench_of_trigger.values(pipe, [b"", b"[1]", b"\xff", None]):
        assert (record.topic, buckets(pipe, record)) == ("enriched", ["!"])
