"""Only steps read heartbeats: for other readers of `normalized` and `enriched` a recorded heartbeat is no record."""

import sqlite3
from collections import Counter
from collections.abc import Callable

import pytest
from aiokafka import ConsumerRecord, TopicPartition
from tests.releases.recorded_stream import recorded

from hifi.kafka.assigned_partition import AssignedPartition
from hifi.kafka.security.access import access, colours_access
from hifi.kafka.topics import ControlTopics, Topics
from hifi.pipe.pipes_end import NOTHING_KNOWN
from hifi.pipe.view import View
from hifi.record.headers import Headers
from hifi.record.heartbeat import heartbeat_record, is_heartbeat
from hifi.record.identity import IdentityReader
from hifi.record.spark_sql import HEADERS
from hifi.runtime.errors import NotAnEvent
from hifi.spark.spark_session import local_spark
from hifi_cli.query.record_tables import create_tables, insert
from hifi_egest.delivery.delivery import ENRICHED, EventRecord, SourcePartition
from hifi_egest.delivery.memory_bounds import InFlightBudget
from hifi_egest.delivery.parsing import Heartbeat, parse
from hifi_infra.kafka.backlog import _raw_offset
from hifi_lake.batch import deliveries
from hifi_observe.ledger.closing import ClosingRules
from hifi_observe.ledger.partition_ledger import PartitionLedger
from hifi_observe.traces.event_tracer import EventTracer
from hifi_view.store.events import EventReader, Refusal, Skipped

HEARTBEATS: dict[str, list[Headers]] = {
    "normalized": [
        [
            ("hifi", b"2;recorded;0;0;1795557196580092;29925953;0000000000000000:0;;heartbeat"),
            ("hifi_hop", b"1795557196580092;8;;;;1795557189110"),
        ],
        [
            ("hifi", b"2;recorded;0;0;1795557197580092;29925953;0000000000000000:0;;heartbeat"),
            ("hifi_hop", b"1795557197580092;"),
        ],
    ],
    "enriched": [
        [
            ("hifi", b"2;recorded;0;0;1795557196580092;29925953;0000000000000000:0;;heartbeat"),
            ("hifi_hop", b"1795557196591000;8;;;;1795557189110"),
        ],
        [
            ("hifi", b"2;recorded;0;0;1795557197580092;29925953;0000000000000000:0;;heartbeat"),
            ("hifi_hop", b"1795557197591000;;"),
        ],
    ],
}
"""As normalize wrote them, with and without a watermark, and as enrich passed them on."""
TOPICS = Topics("s")
VIEW = {
    "view": "recorded",
    "from": {"pipe": "recorded"},
    "key": ["n"],
    "fields": {"twice": "int"},
    "keep": "24h",
    "serve": {"keys": [{"sha256": "0" * 64}], "sql": True},
}


def consumed(topic: str) -> list[ConsumerRecord]:
    """The recorded events of a partition, and heartbeats in front of, among and after them."""
    events = [(record.key, record.value, record.headers) for record in recorded()[topic][0]]
    heartbeats = [(None, None, headers) for headers in HEARTBEATS[topic]]
    return [
        ConsumerRecord(topic, 0, offset, 1795557198000, 0, key, value, None, 0, 0, tuple(headers))
        for offset, (key, value, headers) in enumerate(
            [*heartbeats, *events[:4], *heartbeats, *events[4:], *heartbeats]
        )
    ]


def egest() -> None:
    partition = AssignedPartition(TopicPartition(TOPICS.enriched, 0))
    parsed = parse(SourcePartition(partition, ENRICHED, InFlightBudget(10, 10**6)), consumed("enriched"), 1)
    assert Counter(map(type, parsed)) == {EventRecord: 9, Heartbeat: 6}


def observe() -> None:
    ledger = PartitionLedger(0, ClosingRules(settle_s=20, amend_s=100, follow_s=100))
    spans: list[object] = []
    tracer = EventTracer(TOPICS, 1.0, 1000, spans.append, lambda _: False)
    for topic in HEARTBEATS:
        records = consumed(topic)
        ledger.take(topic, records)
        tracer.take(topic, 0, records)
        assert ledger.positions[topic] == len(records)
    assert not +ledger.foreign
    assert [pipe for pipe, _ in ledger.pipe_minutes] == ["recorded"]
    assert {topic: len(backlog) for topic, backlog in ledger.backlogs.items()} == {
        "normalized": 9,
        "enriched": 9,
    }
    assert len(tracer._traces) == 9
    reader = IdentityReader()
    for headers in HEARTBEATS["enriched"]:  # as the look-up of a record reads them
        with pytest.raises(NotAnEvent):
            reader.read(headers)


def lake() -> None:
    schema = f"key binary, value binary, partition int, offset bigint, headers {HEADERS}, timestamp timestamp"
    rows = [
        (record.key, record.value, 0, record.offset, list(record.headers), None)
        for record in consumed("enriched")
    ]
    with local_spark() as spark:
        parsed = deliveries.parse(spark.createDataFrame(rows, schema), NOTHING_KNOWN)
        delivery_rows = deliveries.deliveries(parsed, [("recorded", "crm"), ("recorded", "")]).collect()
    assert len(delivery_rows) == 9
    assert {row.pipe for row in delivery_rows} == {"recorded"}


def view() -> None:
    for topic in HEARTBEATS:
        reader = EventReader(View.model_validate(VIEW | {"from": {"pipe": "recorded", "at": topic}}))
        reads = [
            reader.read(list(record.headers), record.value, 0, record.offset) for record in consumed(topic)
        ]
        assert reads.count(Skipped.OTHER) == 6
        assert not [read for read in reads if isinstance(read, Refusal)]


def hifi_query() -> None:
    for topic in HEARTBEATS:
        database = sqlite3.connect(":memory:")
        create_tables(database, [topic])
        insert(database, topic, consumed(topic))
        query = f"SELECT count(*), count(DISTINCT pipe) FROM {topic}"
        assert database.execute(query).fetchone() == (9, 1)
        database.close()


def backlog() -> None:
    for topic in HEARTBEATS:
        offsets = [_raw_offset(record) for record in consumed(topic)]
        assert offsets == [8, -1, 0, 1, 2, 3, 8, -1, 4, 5, 6, 7, 8, 8, -1]


READERS: dict[str, Callable[[], None]] = {
    "egest": egest,
    "observe": observe,
    "lake": lake,
    "view": view,
    "operator": hifi_query,
    "scale": backlog,
    "colours": backlog,
}
OTHERS = {"enrich", "state"}
"""One passes heartbeats on, the other one reads them: their own tests show it."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.more) if name == "lake" else name for name in READERS]
)
def test_a_reader_ignores_heartbeats(name: str) -> None:
    READERS[name]()


def test_all_readers_are_among_these() -> None:
    accesses = {**access(TOPICS, ControlTopics("s-control")), **colours_access(TOPICS, None)}
    topics = {TOPICS.normalized, TOPICS.enriched, f"{TOPICS.stream}.*"}
    readers = {name for name, service in accesses.items() if topics & set(service.reads)}
    assert readers - OTHERS == READERS.keys()


def test_heartbeats_are_written_as_they_were_recorded() -> None:
    [full, empty] = HEARTBEATS["normalized"]
    assert heartbeat_record("recorded", 1795557196580092, 8, 1795557189110).headers == full
    assert heartbeat_record("recorded", 1795557197580092, -1, None).headers == empty
    assert all(is_heartbeat(headers) for records in HEARTBEATS.values() for headers in records)
