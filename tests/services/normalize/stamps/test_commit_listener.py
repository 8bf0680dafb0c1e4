"""A heartbeat is written after its commit, and events of its pipe wait until the commit is known."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

from hifi.kafka.adaptive_fetcher import LogEnd
from hifi.kafka.assigned_partition import AssignedPartition
from hifi.kafka.offset_commits import commit
from hifi.pipe.model import Pipe
from hifi.pipe.source import UnreadableSource
from hifi.record.fields import fields
from hifi.record.headers import PIPE
from hifi.record.hop import hop
from hifi.record.record import Record
from hifi.runtime.errors import Fenced
from hifi.runtime.health import Health
from hifi_normalize.stamps import stamps as stamps_module
from hifi_normalize.stamps.stamps import Stamps

TP = TopicPartition("s.raw", 3)
ACCEPTED_US = 1_800_000_000_000_000


def step(source: str) -> Any:
    """A revision of a pipe with the results of a step."""
    declared = UnreadableSource.model_validate({"kind": "step", "from": source})
    pipe = Pipe.model_validate(
        {
            "pipe": f"{source}-results",
            "source": declared,
            "destinations": [{"name": "d", "url": "http://127.0.0.1/"}],
        }
    )
    return SimpleNamespace(pipe=pipe)


class Bench:
    """Stamps of a partition between a Kafka and a clock that tests set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        monkeypatch.setattr(stamps_module, "monotonic_s", lambda: self.now_s)
        self.commits: list[OffsetAndMetadata] = []
        self.fails = False
        self.written: list[Record] = []
        self.registry = self._registry()
        self.health = Health("normalize", "test")
        producer = self._producer()
        self.stamps = Stamps(self.registry, producer, "s.normalized", self.health)
        self.assigned = self.assign()

    def _producer(self) -> Any:
        return SimpleNamespace(send=self._send)

    @staticmethod
    def _registry() -> Any:
        return SimpleNamespace(content_offset=1, in_use=lambda: [step("p")], coloured=False)

    def assign(self, metadata: str = "", committed: int | None = None) -> AssignedPartition:
        assigned = AssignedPartition(TP, committed, metadata)
        assigned.end = lambda: LogEnd(committed or 0, 0.0)
        self.stamps.begin(assigned)
        return assigned

    def _send(self, topic: str, partition: int, records: Sequence[Record]) -> None:
        assert (topic, partition) == ("s.normalized", 3)
        self.written += records

    async def commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        if self.fails:
            raise KafkaError
        self.commits.append(offsets[TP])

    async def round(self) -> None:
        """A round of commits."""
        await commit(self, [self.assigned])

    def event(self, offset: int) -> int | None:
        """Read, stamp and complete an event; returns its stamp."""
        watermarks = self.stamps.of(self.assigned)
        watermarks.go_to(offset)
        self.assigned.offsets.start(offset)
        self.assigned.position = offset + 1
        self.assigned.end = lambda: LogEnd(offset + 1, 0.0)
        stamp = watermarks.stamp(offset, "p", ACCEPTED_US, ACCEPTED_US, self.now_s)
        self.assigned.complete(offset)
        return stamp

    @property
    def stamps_written(self) -> list[int | None]:
        assert {fields(record.headers)[PIPE] for record in self.written} <= {b"p"}
        return [hop(record.headers).stamp_ms for record in self.written]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(monkeypatch)


async def test_a_heartbeat_is_written_after_the_commit_that_keeps_it(bench: Bench) -> None:
    await bench.round()
    assert [(kept.offset, kept.metadata) for kept in bench.commits] == [(0, '{"pipes":1,"marks":{"p":null}}')]
    bench.now_s = 1.5
    await bench.round()
    assert (len(bench.commits), bench.stamps_written) == (1, [None])
    assert bench.event(0) is None
    await bench.round()
    assert (len(bench.commits), bench.commits[-1].offset) == (2, 1)
    bench.now_s, bench.fails = 4.0, True
    with pytest.raises(KafkaError):
        await bench.round()
    assert bench.stamps_written == [None]
    assert bench.stamps.of(bench.assigned).unsure == {"p"}
    bench.now_s, bench.fails = 5.0, False
    await bench.round()
    assert bench.stamps_written == [None, ACCEPTED_US // 1000 + 2500]
    assert hop(bench.written[-1].headers).raw == 0
    assert bench.commits[-1] == OffsetAndMetadata(
        1, f'{{"pipes":1,"marks":{{"p":{ACCEPTED_US // 1000 + 2500}}}}}'
    )
    bench.assigned = bench.assign(bench.commits[-1].metadata, 1)
    assert bench.event(1) == ACCEPTED_US // 1000 + 2500


async def test_who_waits_for_a_commit_goes_on_when_it_is_known_and_ends_with_the_assignment(
    bench: Bench,
) -> None:
    bench.fails = True
    with pytest.raises(KafkaError):
        await bench.round()
    waiting = asyncio.create_task(bench.stamps.until_sure(bench.assigned))
    fenced = asyncio.create_task(bench.stamps.until_sure(bench.assigned))
    await asyncio.sleep(0)
    assert not waiting.done()
    bench.fails = False
    await bench.round()
    await asyncio.gather(waiting, fenced)
    bench.registry.content_offset, bench.fails = 2, True
    bench.registry.in_use = lambda: [step("q")]
    with pytest.raises(KafkaError):
        await bench.round()
    waiting = asyncio.create_task(bench.stamps.until_sure(bench.assigned))
    await asyncio.sleep(0)
    bench.assigned.revoke()
    with pytest.raises(Fenced):
        await waiting


async def test_a_partition_that_is_leaving_decides_nothing_and_keeps_what_it_decided(bench: Bench) -> None:
    bench.fails = True
    with pytest.raises(KafkaError):
        await bench.round()
    bench.assigned.revoke()
    bench.fails, bench.now_s = False, 9.0
    await bench.round()
    assert [kept.metadata for kept in bench.commits] == ['{"pipes":1,"marks":{"p":null}}']
    await bench.round()
    assert (len(bench.commits), bench.written) == (1, [])


async def test_without_steps_nothing_is_kept(bench: Bench) -> None:
    bench.registry.in_use = list
    await bench.round()
    bench.assigned.offsets.start(0)
    bench.assigned.complete(0)
    await bench.round()
    assert bench.commits == [OffsetAndMetadata(1, "")]


async def test_pipes_without_room_in_a_commit_are_shown(bench: Bench) -> None:
    bench.registry.in_use = lambda: [step(f"a-pipe-with-a-long-name-{number}") for number in range(90)]
    await bench.round()
    assert "steps read 90 pipes" in bench.health.warnings["stamps"]
    assert len(bench.commits[0].metadata) < 4096
    bench.registry.content_offset, bench.registry.in_use = 2, list
    await bench.round()
    assert not bench.health.warnings


async def test_the_first_commit_of_a_partition_does_not_pass_events_in_flight(bench: Bench) -> None:
    watermarks = bench.stamps.of(bench.assigned)
    watermarks.go_to(0)
    for offset in (0, 1):
        bench.assigned.offsets.start(offset)
        watermarks.go_to(offset + 1)
    bench.assigned.position = 2
    bench.assigned.end = lambda: LogEnd(2, 0.0)
    await bench.round()
    assert [kept.offset for kept in bench.commits] == [0]
    bench.assigned.complete(0)
    bench.assigned.complete(1)
    await bench.round()
    assert [kept.offset for kept in bench.commits] == [0, 2]


async def test_a_clock_of_the_host_that_is_ahead_raises_no_watermark_further_than_the_brokers_clock(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker_ms, ahead_ms = ACCEPTED_US // 1000, 3_600_000
    monkeypatch.setattr(
        stamps_module, "now_us", lambda: (broker_ms + ahead_ms) * 1000 + int(bench.now_s * 1_000_000)
    )
    bench.registry.coloured = True
    bench.assigned = bench.assign("", 5)
    await bench.round()

    def read(offset: int, append_ms: int) -> None:
        bench.stamps.note_read(
            bench.assigned, SimpleNamespace(offset=offset, timestamp=append_ms), bench.now_s
        )

    read(4, broker_ms - 7_200_000)
    assert bench.stamps.clock_ms(0.0) == broker_ms + ahead_ms, "the record may have waited for long"
    read(5, broker_ms)
    assert bench.event(5) == broker_ms
    await bench.round()
    bench.now_s = 2.5
    await bench.round()
    assert bench.stamps_written == [broker_ms + 2_500]
