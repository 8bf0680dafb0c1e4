"""Measures the modules that mypyc compiles: each compiled beside interpreted, in processes that take turns.

    .venv/bin/python bench/compiled_modules.py [--rounds 5]      # prints a table; run `make setup` first

The figures are microseconds of CPU an event; only the ratios say something about another machine.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from machine_info import ROOT, loop_s

EVENTS = 2000
EPOCH = "0123456789abcdef"
DATA = (
    b'{"id":"2013-07-01-UA-1545","carrier":"UA","flight":"1545","tailnum":"N14228","from":{"airport":"EWR",'
    b'"hour":1372676400},"to":{"airport":"IAH"},"scheduled":"01/07/2013 05:15","dep_delay":"2","air_time":"227",'
    b'"distance":1400,"agent":{"badge":"4711","phone":"+1 212 555 0100","desk":"D4","name":"J. Doe"}}'
)
ATTRIBUTES = [
    ("ce_specversion", b"1.0"),
    ("ce_id", b"2013-07-01-UA-1545"),
    ("ce_source", b"/flights"),
    ("ce_type", b"org.example.flight"),
    ("ce_time", b"2013-07-01T05:15:00Z"),
    ("content-type", b"application/json"),
]


def records(topic: str, hop: str, *extra_headers: tuple[str, bytes]) -> list[Any]:
    """Events as they lie on a topic, with offsets from 0."""
    from aiokafka import ConsumerRecord

    headers = [
        (
            (
                "hifi",
                f"2;flights;7;7;{1_800_000_000_000_000 + 100 * number};30000000;{EPOCH}:{number}".encode(),
            ),
            ("hifi_hop", hop.format(number).encode()),
            *extra_headers,
        )
        for number in range(EVENTS)
    ]
    return [
        ConsumerRecord(
            topic,
            0,
            number,
            1_800_000_000_000 + number // 10,
            0,
            b"key%d" % (number % 50),
            DATA,
            None,
            0,
            len(DATA),
            record_headers,
        )
        for number, record_headers in enumerate(headers)
    ]


def normalize_data() -> Callable[[], object]:
    from hifi.pipe.loader import load
    from hifi.pipe.normalize.program import compile_pipe

    os.environ |= {"FLIGHTS_KEY": "key", "FLIGHTS_MASK": "mask"}
    program = compile_pipe(load(ROOT / "examples/flights")[0][0].pipe)
    return lambda: [program.run(DATA, b"application/json") for _ in range(EVENTS)]


def normalize_fingerprints() -> Callable[[], object]:
    from hifi.record.identity import identity
    from hifi_normalize.idempotency.fingerprint import fingerprint
    from hifi_normalize.idempotency.fingerprint_window import FingerprintWindow

    identified_records = [
        (record, identity(record.headers)) for record in records("raw", "1800000000000000", *ATTRIBUTES)
    ]

    def work() -> None:
        window = FingerprintWindow(600_000)
        for record, event in identified_records:
            event_fingerprint = fingerprint(record, event, declares_id=True)
            if event_fingerprint is not None:
                window.check(event_fingerprint)

    return work


def event_headers() -> Callable[[], object]:
    from hifi.record.hop import hop
    from hifi.record.identity import identity

    all_headers = [record.headers for record in records("normalized", "1800000000000000;{}", *ATTRIBUTES)]

    def work() -> None:
        for headers in all_headers:
            identity(headers)
            hop(headers)

    return work


def offset_tracker() -> Callable[[], object]:
    from hifi.kafka.offset_tracker import OffsetTracker

    def work() -> None:
        tracker = OffsetTracker()
        for first_number in range(0, EVENTS, 100):
            for offset in range(first_number, first_number + 100):
                tracker.start(offset)
            for offset in range(first_number + 99, first_number - 1, -1):
                tracker.finish(offset)

    return work


def token_bucket() -> Callable[[], object]:
    from hifi.runtime.token_bucket import TokenBucket

    def work() -> None:
        bucket = TokenBucket(1000.0)
        for number in range(EVENTS):
            bucket.wait_s(number / 1000)
            bucket.take(number / 1000)

    return work


def ingest_requests(kind: str) -> Callable[[], object]:
    from hifi.pipe.source import HttpSource
    from hifi.record.cloudevents.event import DecodeLimits
    from hifi_ingest.decode.request import EventRequest, PipeFormats, decode_request

    pipe = PipeFormats.of(
        "flights",
        HttpSource.model_validate({"keys": [{"env": "FLIGHTS_KEY"}], "formats": ["cloudevents", "json"]}),
    )
    limits = DecodeLimits(event_bytes=1 << 20, batch_events=1000, depth=64)
    structured = (
        b'{"specversion":"1.0","id":"%d","source":"/flights","type":"org.example.flight",'
        b'"time":"2013-07-01T05:15:00Z","data":%b}'
    )
    requests = {
        "batch": (
            b"application/cloudevents-batch+json",
            b"[%b]" % b",".join(structured % (number, DATA) for number in range(100)),
        ),
        "single": (b"application/cloudevents+json", structured % (1, DATA)),
        "plain": (b"application/json", DATA),
    }
    content_type, body = requests[kind]
    headers = [(b"host", b"localhost"), (b"content-type", content_type), (b"authorization", b"Bearer key")]
    request = EventRequest(headers, body, 1_800_000_000_000_000)

    async def decode() -> None:
        for _ in range(EVENTS // 100 if kind == "batch" else EVENTS):
            await decode_request(request, pipe, limits, allow_plain_json=True)

    return lambda: asyncio.run(decode())


def egest_parse() -> Callable[[], object]:
    from aiokafka import TopicPartition

    from hifi.kafka.consumer import AssignedPartition
    from hifi_egest.delivery.delivery import ENRICHED, SourcePartition
    from hifi_egest.delivery.memory_bounds import InFlightBudget
    from hifi_egest.delivery.parsing import parse

    assigned = AssignedPartition(TopicPartition(ENRICHED, 0))
    partition = SourcePartition(assigned, ENRICHED, InFlightBudget(10, 1 << 20))
    enriched_records = records(ENRICHED, "1800000000000000;{};departures", *ATTRIBUTES)
    return lambda: parse(partition, enriched_records, 1_800_000_000_000_000)


def egest_deduplicate() -> Callable[[], object]:
    from hifi_egest.dedup.commit_metadata import CommitMetadata
    from hifi_egest.dedup.deduplicator import Deduplicator
    from hifi_egest.dedup.outcome_index import OutcomeIndex

    keys = [b"%d" % number for number in range(EVENTS)]

    def work() -> None:
        deduplicator = Deduplicator(CommitMetadata(), OutcomeIndex())
        deduplicator.begin_batch(0, {"receipts": 0})
        for number, key in enumerate(keys):
            deduplicator.check(number, key, "raw", number, 1_800_000_000_000_000 + number)
            if number % 100 == 0:
                deduplicator.metadata_at(number)

    return work


def egest_queue() -> Callable[[], object]:
    from aiokafka import TopicPartition

    from hifi.kafka.consumer import AssignedPartition
    from hifi_egest.delivery.delivery import ENRICHED, NO_EARLIER_ATTEMPTS, Delivery, SourcePartition
    from hifi_egest.delivery.memory_bounds import InFlightBudget
    from hifi_egest.delivery.parsing import parse
    from hifi_egest.lanes.queue import DeliveryQueue

    assigned = AssignedPartition(TopicPartition(ENRICHED, 0))
    partition = SourcePartition(assigned, ENRICHED, InFlightBudget(10, 1 << 20))
    events: list[Any] = parse(partition, records(ENRICHED, "1;{};departures", *ATTRIBUTES), 1)

    def work() -> None:
        queue = DeliveryQueue(ordered=True)
        for event in events:
            queue.add(Delivery(event, b"departures", NO_EARLIER_ATTEMPTS), 0.0)
        while (delivery := queue.take()) is not None:
            queue.release(delivery.event.record.key)

    return work


def egest_lane() -> Callable[[], object]:
    from aiokafka import TopicPartition

    from hifi.kafka.consumer import AssignedPartition
    from hifi.kafka.partition_lease import PartitionLease
    from hifi.pipe.model import BatchPolicy
    from hifi_egest.delivery.delivery import ENRICHED, Delivery, SourcePartition, decide_all
    from hifi_egest.delivery.memory_bounds import InFlightBudget, LaneRoom
    from hifi_egest.delivery.parsing import parse
    from hifi_egest.lanes.queue import RequestQueue

    assigned = AssignedPartition(TopicPartition(ENRICHED, 0))
    budget, lease = InFlightBudget(100_000, 1 << 30), PartitionLease(lambda: None, 60.0)
    partition = SourcePartition(assigned, ENRICHED, budget)
    events: list[Any] = parse(partition, records(ENRICHED, "1;{};departures", *ATTRIBUTES), 1)
    batch = BatchPolicy(size=500, wait=0.05)

    def work() -> None:
        room, queue = LaneRoom(4000, 1 << 30, budget), RequestQueue(lease, ordered=True)
        for event in events:
            if room.fits(event.size_bytes):
                queue.add(Delivery(event, b"departures", room=room), 0.0)
                room.add(event.size_bytes)
        while queue.has_request:
            request = queue.next_request(batch)
            assert request.active
            request.count_attempt(0.0, 1)
            decide_all(request.deliveries)
            queue.finish(request)
        partition.end(len(events), 0)

    return work


def egest_rows() -> Callable[[], object]:
    from hifi.delivery.kind import OutboundEvent
    from hifi_postgres.declaration import PostgresSettings
    from hifi_postgres.destination.column_type import ColumnType
    from hifi_postgres.destination.statements import TableStatements

    columns = {"flight": "flight", "carrier": "carrier", "distance": "distance"}
    table = TableStatements(
        PostgresSettings.model_validate(
            {"url": {"env": "URL"}, "table": "flights", "columns": columns, "mode": "append"}
        )
    )
    text, number, log = [
        ColumnType(sql, sql, name, category)
        for sql, name, category in [("text", "text", "S"), ("bigint", "int8", "N"), ("uuid", "uuid", "U")]
    ]
    types = {"flight": text, "carrier": text, "distance": number}
    table.use_types(types | {"hifi_log": log, "hifi_partition": number, "hifi_offset": number})
    events = [
        OutboundEvent(DATA, "application/json", {}, b"key", "0a" * 16, 0, number, number)
        for number in range(EVENTS)
    ]

    def work() -> None:
        [_] = table.executions(table.rows(table.changes(events)))

    return work


def egest_decide() -> Callable[[], object]:
    from hifi.delivery.answer import Answer
    from hifi.pipe.model import RetryPolicy
    from hifi_egest.policy.outcome import AttemptCounts, decide

    answer, policy = Answer(200), RetryPolicy()

    def work() -> None:
        for _ in range(EVENTS):
            decide(answer, policy, AttemptCounts(1, 1, 0.0, 0.0, 0), (), jitter=0.5)

    return work


def observe_ledger() -> Callable[[], object]:
    from hifi_observe.ledger.closing import ClosingRules
    from hifi_observe.ledger.partition_ledger import PartitionLedger

    receipt = b"delivered;departures;enriched:5;0;1;200;1800000000100000;1800000000100500;;;;"
    records_by_topic = {
        "raw": records("raw", "1800000000000000", *ATTRIBUTES),
        "normalized": records("normalized", "1800000000000000;{}", *ATTRIBUTES),
        "enriched": records("enriched", "1800000000000000;{};departures", *ATTRIBUTES),
        "receipts": records("receipts", "1800000000000000;{}", ("hifi_receipt", receipt)),
    }

    def work() -> None:
        ledger = PartitionLedger(0, ClosingRules(settle_s=20, amend_s=100_000, follow_s=1_000_000))
        for start in range(0, EVENTS, 100):
            for topic, topic_records in records_by_topic.items():
                ledger.take(topic, topic_records[start : start + 100])

    return work


def observe_sketch() -> Callable[[], object]:
    from hifi_observe.ledger.sketch import Sketch

    values = [(number * 7919) % 500_000 for number in range(EVENTS)]

    def work() -> None:
        sketch = Sketch()
        for start in range(0, EVENTS, 100):
            sketch.extend(values[start : start + 100])
        sketch.quantile_us(0.95)

    return work


def partitions() -> Callable[[], object]:
    from hifi.record.partitioner import murmur2

    keys = [b"flight-%d" % flight_number for flight_number in range(EVENTS)]
    return lambda: [murmur2(key) for key in keys]


CASES: dict[str, Callable[[], Callable[[], object]]] = {
    "normalize: flights pipe": normalize_data,
    "normalize: client retries": normalize_fingerprints,
    "event headers": event_headers,
    "offset tracker": offset_tracker,
    "token bucket": token_bucket,
    "ingest: CloudEvent": lambda: ingest_requests("single"),
    "ingest: batches of 100": lambda: ingest_requests("batch"),
    "ingest: plain JSON": lambda: ingest_requests("plain"),
    "partition of a key": partitions,
    "egest: parse": egest_parse,
    "egest: deduplicate": egest_deduplicate,
    "egest: queue": egest_queue,
    "egest: lane": egest_lane,
    "egest: rows for PostgreSQL": egest_rows,
    "egest: decide": egest_decide,
    "observe: ledger": observe_ledger,
    "observe: sketch": observe_sketch,
}


def measure() -> dict[str, float]:
    """Microseconds of CPU an event: the best of some runs of each case."""
    cpu_us = {}
    for name, prepare in CASES.items():
        work = prepare()
        times_s = []
        for _ in range(7):
            began_s = time.process_time()
            work()
            times_s.append(time.process_time() - began_s)
        cpu_us[name] = min(times_s) / EVENTS * 1e6
    return cpu_us


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--measure", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        from hifi.runtime.compiled import import_hook

        measurements = measure()
        assert import_hook.in_use() == (os.environ["HIFI_COMPILED"] == "1"), "run `make setup` first"
        print(json.dumps(measurements))
        return
    rounds: dict[str, list[dict[str, float]]] = {"0": [], "1": []}
    for _ in range(arguments.rounds):
        for compiled, results in rounds.items():
            command = [sys.executable, __file__, "--measure"]
            environment = os.environ | {"HIFI_COMPILED": compiled}
            results.append(json.loads(subprocess.run(command, env=environment, check=True, stdout=-1).stdout))
    print(
        f"loop of 20 million additions: {loop_s():.2f} s\n\n| | interpreted | compiled | ratio |\n|---|---|---|---|"
    )
    for name in CASES:
        cpu_before_us, cpu_after_us = (
            statistics.median(cpu_us[name] for cpu_us in rounds[compiled]) for compiled in "01"
        )
        print(f"| {name} | {cpu_before_us:.2f} | {cpu_after_us:.2f} | {cpu_after_us / cpu_before_us:.2f} |")


if __name__ == "__main__":
    main()
