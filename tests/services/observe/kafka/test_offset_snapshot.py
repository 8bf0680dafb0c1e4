"""Ends that a broker tells after it stood still close no minute, and move no chain."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiokafka import TopicPartition

from hifi.kafka.topics import Topics
from hifi.runtime.trusted_clock import ClockReading, TrustedClock
from hifi_observe.kafka import chain_reader, offset_snapshot
from hifi_observe.kafka.chain_reader import ChainReader
from hifi_observe.kafka.offset_snapshot import OffsetSnapshotReader
from hifi_observe.settings import ObserveSettings
from hifi_observe.watermark.chain_statements import ChainStatements

S = 1_000_000
START_US = 1_700_000_000 * S
TOPICS = Topics("s")


class SlowBroker:
    """A consumer and an admin client; the answer about ends takes as long as the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any) -> None:
        self.now_us = 0
        self.answer_us = 0
        monkeypatch.setattr(module, "read_clocks", lambda: ClockReading(self.now_us, START_US + self.now_us))

    async def end_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        if tps[0].topic != TOPICS.accepted:
            self.now_us += self.answer_us
        return dict.fromkeys(tps, 7)

    async def beginning_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, 0)

    async def list_consumer_group_offsets(self, _group: str, **_: Any) -> dict[TopicPartition, Any]:
        return {}

    async def describe_topics(self, _topics: list[str]) -> list[dict[str, Any]]:
        return [{"partitions": [{"partition": 0}]}]


async def test_a_snapshot_with_ends_of_a_broker_that_stood_still_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker, warnings = SlowBroker(monkeypatch, offset_snapshot), list[str]()
    logger = SimpleNamespace(warning=lambda event, **_: warnings.append(event))
    monkeypatch.setattr(offset_snapshot, "logger", logger)
    reader = OffsetSnapshotReader("127.0.0.1:9", "i", TOPICS)
    reader._admin = broker
    counted = []
    for answer_us, pause_us in ((0, S), (5 * S, S), (0, 8 * S), (0, 2 * S), (0, 0)):
        broker.answer_us = answer_us
        counted.append(bool(await reader.snapshots(broker, [0], 1)))
        broker.now_us += pause_us
    assert counted == [True, False, False, False, True]
    assert warnings == ["end-offsets-late"], "once, when it begins"


async def test_a_chain_is_not_moved_by_a_broker_that_stood_still(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = SlowBroker(monkeypatch, chain_reader)
    chain = SimpleNamespace(
        topic=SimpleNamespace(topic="orders", servers=frozenset({("127.0.0.1", 9)})),
        oldest_ends={},
        note_offsets=lambda *_: False,
        readings=[],
        forgotten=[],
    )
    chain.take, chain.forget = chain.readings.append, chain.forgotten.append
    chains = SimpleNamespace(known_chain=lambda _: chain, upstream=lambda _: ("", 5))
    clock = TrustedClock()
    clock.confirm(ClockReading(0, START_US), START_US // 1000, 0)
    settings = ObserveSettings(kafka="127.0.0.1:9", stream="s")
    reader = ChainReader(settings, TOPICS, cast(ChainStatements, chains), lambda _: True, clock)
    monkeypatch.setattr(reader, "_unreadable", lambda _: "")
    for answer_us in (0, 5 * S, 0):
        broker.answer_us = answer_us
        await reader._read_chain("p", broker, broker, broker)
    assert len(chain.readings) == 1
    assert not chain.forgotten, "it is not known to be wrong either"
