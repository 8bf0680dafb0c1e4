"""Spans of sampled events: the way hop by hop, at a real OTLP receiver; sampling; and what a dead collector costs."""

import asyncio
import logging
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import CapturingLogger
from tests.support.collector import collector
from tests.support.observe.simulated_mesh import identity
from tests.support.observe.stream_double import Stream, added, new_stream, pipe

from hifi.kafka.topics import Topics
from hifi.pipe.model import Pipe
from hifi.record.fields import packed
from hifi.record.headers import ACCEPTED, DETAIL, TRACEPARENT
from hifi_observe import metrics
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.pipes import ObservedPipes
from hifi_observe.traces import event_tracer, otlp_exporter
from hifi_observe.traces.event_tracer import EventTracer
from hifi_observe.traces.otlp_exporter import OtlpExporter
from hifi_observe.traces.span import Span, context, sampled

TRACE = 0x0AF7651916CD43DD8448EB211C80319C
SENDER = 0xB7AD6B7169203331
PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
T0 = 1_700_000_000_000_000
SECRET = b"4111-1111"


@dataclass
class Row:
    offset: int
    timestamp: int
    headers: list[tuple[str, bytes]]
    value: bytes | None = SECRET


Records = list[tuple[str, Row]]


def time_at(ms: float) -> bytes:
    return b"%d" % (T0 + ms * 1000)


def row(seq: bytes, append_ms: int, offset: int = 0, **headers: bytes) -> Row:
    """A record with hifi's headers; the names of `headers` without `hifi_`."""
    values = {
        **identity(seq, 1),
        ACCEPTED: time_at(0),
        DETAIL: b"cannot cast " + SECRET,
        **{name if name.startswith("ce_") else f"hifi_{name}": value for name, value in headers.items()},
    }
    return Row(offset, T0 // 1000 + append_ms, packed(values))


def at_in(ms: float) -> dict[str, Any]:
    """The header `in`, whose name is a keyword."""
    return {"in": time_at(ms)}


def way(seq: bytes = b"%016x:1" % 7, destinations: bytes = b"crm", parent: bytes = PARENT) -> Records:
    """An event's records up to `enriched`."""
    attributes: dict[str, Any] = {"ce_id": b"a-1"} | ({TRACEPARENT: parent} if parent else {})
    return [
        ("raw", row(seq, 5, 11, **attributes, **at_in(-1))),
        ("normalized", row(seq, 12, 12, **attributes, **at_in(8))),
        ("enriched", row(seq, 30, 13, to=destinations, **attributes, **at_in(20))),
    ]


def receipt(
    outcome: bytes,
    *,
    seq: bytes = b"%016x:1" % 7,
    parent: bytes = PARENT,
    destination: bytes = b"crm",
    times: tuple[float, float, float] = (33.5, 35, 50),
    source: bytes = b"enriched:13",
    **extra_fields: bytes,
) -> tuple[str, Row]:
    """A receipt; `times`: of fetch, sending and answer."""
    attributes: dict[str, Any] = {TRACEPARENT: parent} if parent else {}
    values: dict[str, Any] = {
        "in": time_at(times[0]),
        "sent": time_at(times[1]),
        "answered": time_at(times[2]),
        "status": b"200",
        "pass": b"0",
    }
    return "receipts", row(
        seq,
        int(times[2]) + 2,
        **attributes,
        **values | {"destination": destination, "outcome": outcome, "source": source} | extra_fields,
    )


def retried() -> Records:
    """Records of an event that was refused once, brought back and delivered."""
    attributes: dict[str, Any] = {"ce_id": b"a-1", TRACEPARENT: PARENT, "destination": b"crm"}
    return [
        *way(),
        (
            "retry-in.5s",
            row(
                b"%016x:1" % 7,
                51,
                4,
                **attributes,
                **{"in": time_at(33.5), "pass": b"0", "reason": b"status-503"},
            ),
        ),
        receipt(b"retry", status=b"503", reason=b"status-503"),
        (
            "retry-out",
            row(b"%016x:1" % 7, 5060, 6, **attributes, **{"in": time_at(60), "pass": b"1", "retry": b"5s:4"}),
        ),
        receipt(b"delivered", times=(5061, 5062, 5070), source=b"retry-out:6", **{"pass": b"1"}),
    ]


def tracer_with_spans(
    share: float = 0.0, most_per_s: int = 1000, **options: Any
) -> tuple[EventTracer, list[Span]]:
    spans: list[Span] = []
    options = {"hides_id": lambda _: False} | options
    return EventTracer(Topics("s"), share, most_per_s, spans.append, **options), spans


def spans_of(records: Records, share: float = 0.0, **options: Any) -> list[Span]:
    tracer, spans = tracer_with_spans(share, **options)
    for topic, record in records:
        tracer.take(topic, 3, [record])
    return spans


def ms(span: Span) -> tuple[float, float]:
    return (span.start_us - T0) / 1000, (span.end_us - T0) / 1000


def sections(spans: list[Span]) -> dict[str, tuple[float, float]]:
    return {span.name: ms(span) for span in spans}


def count(outcome: str) -> float:
    return float(metrics.SPANS.labels(outcome)._value.get())


def has_dropped(spans: float) -> bool:
    return count("dropped") == spans


def until(condition: Callable[[], Any], within_s: float = 20) -> None:
    ends_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < ends_s, "it never came"
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_exporter, "_EVERY_S", 0.02)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "0.5")


@pytest.fixture
def dead() -> Iterator[socket.socket]:
    """Holds a port on which nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock


def test_a_receiver_gets_the_way_of_an_event_hop_by_hop() -> None:
    count_before = count("exported")
    with collector() as trace_collector:
        exporter = OtlpExporter(trace_collector.url + "/", "s")
        tracer, _ = tracer_with_spans()
        tracer._emit = exporter.put
        for topic, record in [*way(), receipt(b"delivered")]:
            tracer.take(topic, 3, [record])
        until(lambda: len(trace_collector.spans) == 9)
        exporter.stop(5)
    assert trace_collector.paths == {"/v1/traces"}
    assert count("exported") - count_before == 9
    root = next(span for span in trace_collector.spans if span.raw.name == "flights")
    assert {span.raw.trace_id.hex() for span in trace_collector.spans} == {f"{TRACE:032x}"}
    assert root.raw.parent_span_id.hex() == f"{SENDER:016x}"
    assert {span.raw.parent_span_id for span in trace_collector.spans if span is not root} == {
        root.raw.span_id
    }
    assert len({span.raw.span_id for span in trace_collector.spans}) == 9
    ordered_spans = sorted(trace_collector.spans, key=lambda span: (span.times_us[0], -span.times_us[1]))
    assert [
        (span.service, span.raw.name, *((us - T0) / 1000 for us in span.times_us)) for span in ordered_spans
    ] == [
        ("hifi", "flights", 0, 50),
        ("hifi-ingest", "ingest", 0, 5),
        ("hifi", "transit raw", 5, 8),
        ("hifi-normalize", "normalize", 8, 12),
        ("hifi", "transit normalized", 12, 20),
        ("hifi-enrich", "enrich", 20, 30),
        ("hifi", "transit enriched", 30, 33.5),
        ("hifi-egest", "egest", 33.5, 35),
        ("hifi-egest", "expel", 35, 50),
    ]
    spans_by_name = {span.raw.name: span for span in trace_collector.spans}
    ids = {"hifi.pipe": "flights", "hifi.seq": "0000000000000007:1", "hifi.ce_id": "a-1"}
    assert spans_by_name["enrich"].attributes == ids | {
        "messaging.system": "kafka",
        "messaging.destination.name": "s.normalized",
        "messaging.destination.partition.id": "3",
        "messaging.kafka.offset": 12,
        "messaging.operation.type": "process",
        "messaging.operation.name": "enrich",
        "messaging.consumer.group.name": "s.enrich",
    }
    assert spans_by_name["expel"].attributes == {key: ids[key] for key in ids} | {
        "hifi.destination": "crm",
        "hifi.outcome": "delivered",
        "hifi.attempt": 0,
        "http.response.status_code": 200,
    }
    assert root.attributes == ids | {"hifi.destination": "crm", "hifi.outcome": "delivered"}
    kinds = Counter(span.raw.SpanKind.Name(span.raw.kind) for span in trace_collector.spans)
    assert kinds == {
        "SPAN_KIND_INTERNAL": 4,
        "SPAN_KIND_PRODUCER": 1,
        "SPAN_KIND_CONSUMER": 3,
        "SPAN_KIND_CLIENT": 1,
    }
    assert all(SECRET not in body and b"cannot cast" not in body for body in trace_collector.bodies)


def test_the_order_in_which_topics_are_read_and_copies_change_nothing() -> None:
    records = retried()
    expected = {
        (span.name, span.id, span.parent, span.start_us, span.end_us, span.failed)
        for span in spans_of(records)
    }
    assert len(expected) == 14
    for seed in range(50):
        shuffled_records = records * 2
        random.Random(seed).shuffle(shuffled_records)
        spans = spans_of(shuffled_records)
        actual = [
            (span.name, span.id, span.parent, span.start_us, span.end_us, span.failed) for span in spans
        ]
        assert len(actual) == 14
        assert set(actual) == expected
        assert next(span for span in spans if span.name == "flights").attributes["hifi.ce_id"] == "a-1"


def test_a_retry_is_shown_with_its_wait() -> None:
    spans = spans_of(retried())
    expels = [
        (*ms(span), span.failed, span.attributes["hifi.outcome"]) for span in spans if span.name == "expel"
    ]
    assert expels == [(35, 50, True, "retry"), (5062, 5070, False, "delivered")]
    causes = {"error.type": "status-503", "http.response.status_code": 503}
    assert causes.items() <= next(span for span in spans if span.name == "expel").attributes.items()
    expected = {
        "transit retry-in": (51, 60),
        "retrier": (60, 5060),
        "transit retry-out": (5060, 5061),
        "flights": (0, 5070),
    }
    assert expected.items() <= sections(spans).items()
    retrier = next(span for span in spans if span.name == "retrier")
    assert retrier.attributes["messaging.destination.name"] == "s.retry-in.5s"
    assert retrier.attributes["messaging.kafka.offset"] == 4


def test_the_span_of_an_event_is_sent_when_all_its_deliveries_have_ended() -> None:
    first_records = [*way(destinations=b"crm,erp"), receipt(b"delivered")]
    assert "flights" not in sections(spans_of(first_records))
    dead_letter = (
        "dead-letter",
        row(b"%016x:1" % 7, 70, service=b"egest", destination=b"erp", attempt=b"1", **at_in(34)),
    )
    spans = spans_of(
        [
            *first_records,
            receipt(b"dead-letter", destination=b"erp", times=(34, 36, 60), reason=b"status-410"),
            dead_letter,
        ]
    )
    root = next(span for span in spans if span.name == "flights")
    assert (root.attributes["hifi.outcome"], root.failed, ms(root)) == (
        "dead-letter,delivered",
        True,
        (0, 60),
    )
    assert root.attributes["hifi.destination"] == "crm,erp"
    assert sum(span.name == "expel" for span in spans) == 2


@pytest.mark.parametrize(
    ("last_record", "name", "outcome"),
    [
        (
            ("receipts", row(b"%016x:1" % 7, 9, outcome=b"duplicate", **at_in(8))),
            "normalize",
            "duplicate",
        ),
        (
            ("dead-letter", row(b"%016x:1" % 7, 9, service=b"normalize", **at_in(8))),
            "normalize",
            "dead-letter",
        ),
    ],
)
def test_an_event_may_end_before_its_destinations(
    last_record: tuple[str, Row], name: str, outcome: str
) -> None:
    spans = spans_of([way()[0], last_record])
    assert sections(spans) == {
        "ingest": (0, 5), "transit raw": (5, 8), name: (8, 9), "flights": (0, 9)
    }  # fmt: skip
    assert next(span for span in spans if span.name == "flights").attributes["hifi.outcome"] == outcome


def test_a_step_that_does_not_count_an_event_has_a_span_and_ends_nothing() -> None:
    refusal = ("dead-letter", row(b"%016x:1" % 7, 40, service=b"state", reason=b"late", **at_in(36)))
    spans = spans_of([*way(), refusal])
    assert sections(spans)["state"] == (36, 40)
    assert "flights" not in sections(spans)
    spans = spans_of([*way(), refusal, receipt(b"delivered")])
    root = next(span for span in spans if span.name == "flights")
    assert (root.attributes["hifi.outcome"], root.failed) == ("delivered", False)


def test_an_event_that_no_destination_wants_has_a_span_too() -> None:
    filtered_receipt = (
        "receipts",
        row(b"%016x:1" % 7, 34, outcome=b"filtered", source=b"enriched:13", **at_in(33)),
    )
    spans = spans_of([*way(destinations=b""), filtered_receipt])
    assert sections(spans)["egest"] == (33, 34)
    assert next(span for span in spans if span.name == "flights").attributes["hifi.outcome"] == "filtered"


def test_an_event_that_never_ends_has_the_outcome_unfinished() -> None:
    now_s = [0.0]
    tracer, spans = tracer_with_spans(clock=lambda: now_s[0])
    for topic, record in way():
        tracer.take(topic, 3, [record])
    now_s[0] = event_tracer.KEPT_S
    tracer.take("accepted", 3, [])
    assert sections(spans)["flights"] == (0, 30)
    assert spans[-1].attributes["hifi.outcome"] == "unfinished"
    for topic, record in [way()[2], receipt(b"delivered")]:
        tracer.take(topic, 3, [record])
    assert sections(spans)["expel"] == (35, 50), "what comes later still has its spans"
    now_s[0] *= 2
    tracer.take("accepted", 3, [])
    assert sum(span.name == "flights" for span in spans) == 1


def test_another_instance_tells_of_partitions_that_were_handed_over() -> None:
    tracer, spans = tracer_with_spans()
    for topic, record in way():
        tracer.take(topic, 3, [record])
    tracer.keep({1, 2})
    tracer.take("receipts", 3, [receipt(b"delivered")[1]])
    assert "flights" not in sections(spans)


def test_sampling_depends_on_the_trace_alone() -> None:
    chance = random.Random(1)
    seqs = [b"%016x:%d" % (chance.getrandbits(64), number) for number in range(20_000)]
    sampled_seqs = {seq for seq in seqs if sampled(context(seq, b"").trace, 0.01)}
    assert 150 < len(sampled_seqs) < 250
    records = [
        record
        for seq in seqs[:1000]
        for record in [*way(seq, parent=b""), receipt(b"delivered", seq=seq, parent=b"")]
    ]
    chance.shuffle(records)
    spans = spans_of(records, share=0.01)
    span_counts = Counter(span.attributes["hifi.seq"].encode() for span in spans)
    assert span_counts == dict.fromkeys(sampled_seqs & set(seqs[:1000]), 9), "all hops of an event or none"
    assert {span.trace for span in spans} == {context(seq, b"").trace for seq in span_counts}
    assert {span.parent for span in spans if span.name == "flights"} == {0}
    assert not sampled(TRACE, 0)
    assert sampled((1 << 128) - 1, 1)


def test_the_senders_flag_samples_and_a_malformed_trace_is_none() -> None:
    assert len(spans_of([*way(), receipt(b"delivered")])) == 9
    unflagged_parent = PARENT[:-2] + b"00"
    assert spans_of([*way(parent=unflagged_parent), receipt(b"delivered", parent=unflagged_parent)]) == []
    flagged_parent = PARENT[:-2] + b"03"
    assert {span.trace for span in spans_of(way(parent=flagged_parent))} == {TRACE}
    for malformed_parent in (
        PARENT.upper(),
        PARENT[:-3],
        b"ff" + PARENT[2:],
        b"00-" + b"0" * 32 + PARENT[35:],
    ):
        assert spans_of(way(parent=malformed_parent)) == [], malformed_parent


def test_a_second_begins_a_bounded_number_of_events_and_each_with_all_its_hops() -> None:
    now_s = [100.0]
    capped_before = metrics.TRACES_CAPPED._value.get()
    tracer, spans = tracer_with_spans(most_per_s=10, clock=lambda: now_s[0])
    seqs = [b"%016x:%d" % (7, number) for number in range(100)]
    for group in range(3):
        for seq in seqs:
            topic, record = way(seq)[group]
            tracer.take(topic, 3, [record])
        now_s[0] += 1
    assert Counter(span.attributes["hifi.seq"].encode() for span in spans) == dict.fromkeys(seqs[:10], 5)
    assert metrics.TRACES_CAPPED._value.get() - capped_before == 90


def test_an_id_that_the_pipe_masks_is_left_out() -> None:
    spans = spans_of([*way(), receipt(b"delivered")], hides_id=lambda pipe: pipe == "flights")
    assert len(spans) == 9
    assert not any("hifi.ce_id" in span.attributes for span in spans)


@pytest.mark.parametrize(
    ("id_field", "masked_field", "mapped_fields", "is_hidden"),
    [
        (None, "email", None, False),
        ("id", "email", None, False),
        ("email", "email", None, True),
        ("a.b", "a", None, True),
        ("e\u0301.b", "\u00e9", None, True),
        ("ab", "a", None, False),
        ("email", "mail", {"mail": "email"}, True),
        ("email", "mail", {"mail": {"from": "email"}}, True),
        ("a.b", "c", {"c.d": "a"}, True),
        ("a.b", "c.b", {"c": "a"}, True),
        ("a.b", "c.e", {"c": "a"}, False),
        ("email", "mail", {"mail": "other", "sent": "email"}, False),
    ],
)
def test_an_id_is_hidden_where_its_field_is_masked(
    id_field: str | None, masked_field: str, mapped_fields: dict[str, Any] | None, is_hidden: bool
) -> None:
    normalize: dict[str, Any] = {"mask": {masked_field: "drop"}}
    if mapped_fields is not None:
        normalize |= {"keep": "mapped", "fields": mapped_fields}
    declared_pipe = Pipe.model_validate(
        pipe().model_dump(exclude_unset=True)
        | {
            "source": {"keys": [{"env": "KEY"}], "id": id_field},
            "normalize": normalize,
        }
    )
    held_reasons: dict[str, str] = {}
    revisions = {"flights": SimpleNamespace(pipe=declared_pipe)}
    registry = SimpleNamespace(get=revisions.get, held=held_reasons.get)
    pipes = ObservedPipes(registry, MinuteStore(), 10)  # type: ignore[arg-type]
    assert pipes.hides_id("flights") is is_hidden
    assert pipes.hides_id("deleted"), "nobody knows what it masked"
    held_reasons["flights"] = "its declaration cannot be read"
    assert pipes.hides_id("flights")
    assert pipes.masks("flights")


@pytest.fixture(params=[logging.WARNING, logging.CRITICAL])
def _root_level(request: pytest.FixtureRequest) -> Iterator[None]:
    level = logging.root.level
    logging.root.setLevel(request.param)
    yield
    logging.root.setLevel(level)


@pytest.mark.usefixtures("_root_level")
def test_a_dead_collector_costs_spans_and_one_line(
    dead: socket.socket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT", "1.3")  # enough for one more try
    logger = CapturingLogger()
    monkeypatch.setattr(otlp_exporter, "logger", logger)
    spans = spans_of([*way(), receipt(b"delivered")])
    dropped_before, port = count("dropped"), dead.getsockname()[1]
    exporter = OtlpExporter(f"http://127.0.0.1:{port}", "s")
    for number in range(1, 4):
        for span in spans:
            exporter.put(span)
        until(partial(has_dropped, dropped_before + 9 * number))
    assert [(call.method_name, *call.args) for call in logger.calls] == [("warning", "spans-dropped")]
    assert "refused" in logger.calls[0].kwargs["cause"]
    assert not caplog.records, "not another line for each"
    dead.close()
    with collector(port) as trace_collector:
        exporter.put(spans[0])
        until(lambda: trace_collector.spans)
        until(lambda: len(logger.calls) == 2)
        assert logger.calls[1].args == ("span-export-resumed",)
        exporter.stop(5)


def test_a_collector_that_does_not_answer_blocks_nothing() -> None:
    span = spans_of(way())[0]
    dropped_before = count("dropped")
    with collector() as trace_collector:
        trace_collector.answers.clear()
        exporter = OtlpExporter(trace_collector.url, "s")
        start_s = time.monotonic()
        for _ in range(otlp_exporter.QUEUED * 3):
            exporter.put(span)
        assert time.monotonic() - start_s < 30, "it did not wait for an answer that never comes"
        assert count("dropped") - dropped_before >= otlp_exporter.QUEUED
        trace_collector.answers.set()
        exporter.stop(5)


def test_nothing_of_opentelemetry_is_imported_unless_it_is_on() -> None:
    program = """
import asyncio, sys
from hifi.runtime.health import Health
from hifi_observe import __main__
from hifi_observe.observer import Observer
from hifi_observe.settings import ObserveSettings

async def main():
    off = Observer(ObserveSettings(), Health("observe", "i"))
    assert off.stream.tracing.tracer is None and not any(name.startswith("opentelemetry") for name in sys.modules)
    on = Observer(ObserveSettings(observe_otlp_endpoint="http://127.0.0.1:9"), Health("observe", "i"))
    assert on.stream.tracing.tracer is not None and "opentelemetry" in sys.modules

asyncio.run(main())
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


async def test_observe_exports_what_it_reads_from_kafka(kafka: str) -> None:
    minute = time.time_ns() // 60_000_000_000
    with collector() as trace_collector:
        async with (
            new_stream(kafka) as stream,
            stream.observing(observe_otlp_endpoint=trace_collector.url, observe_otlp_share=1.0),
        ):
            await stream.events(1, minute, 20)
            await write_traced_event(stream, minute)

            def roots() -> list[Any]:
                return [span for span in trace_collector.spans if span.raw.name == "flights"]

            async with asyncio.timeout(60):
                while len(roots()) < 21:
                    await asyncio.sleep(0.05)
        traced_spans = [span for span in trace_collector.spans if span.raw.trace_id.hex() == f"{TRACE:032x}"]
        assert {span.raw.parent_span_id.hex() for span in traced_spans if span.raw.name == "flights"} == {
            f"{SENDER:016x}"
        }
        assert {span.service for span in traced_spans} == {
            "hifi",
            *(f"hifi-{service}" for service in ("ingest", "normalize", "enrich", "egest")),
        }
        assert {span.attributes["hifi.outcome"] for span in roots()} == {"delivered"}


async def write_traced_event(stream: Stream, minute: int) -> None:
    """One event that its sender traces."""
    fields = stream.fields(1, minute) | {TRACEPARENT: PARENT}
    for topic, extra_fields in added(fields[ACCEPTED]).items():
        await stream.write(topic, 1, [fields | extra_fields])
