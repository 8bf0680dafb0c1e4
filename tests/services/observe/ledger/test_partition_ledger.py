"""The ledger against a simulated mesh with known faults: exactly the lost identities are reported."""

import random
from collections import Counter, defaultdict
from itertools import islice
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.observe.simulated_mesh import READS, TOPICS, Id, Mesh, id_of, size_of

from hifi_observe.ledger.closing import ClosingRules, MinuteResult, OffsetSnapshot
from hifi_observe.ledger.partition_ledger import PartitionLedger
from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.ledger.stage import EventStage

pytestmark = pytest.mark.timeout(900)
RULES = ClosingRules(settle_s=20, amend_s=100_000, follow_s=1_000_000)


class Observer:
    """Drives a book over a mesh: reads topics in any order, dies and begins again from what it wrote."""

    def __init__(self, mesh: Mesh, chance: random.Random, *, restarts: bool = False) -> None:
        self.mesh, self.chance, self.restarts = mesh, chance, restarts
        self.ledger = PartitionLedger(0, RULES)
        self.position = dict.fromkeys(TOPICS, 0)
        self.ledger.positions = dict(self.position)
        self.pipe_minutes: dict[tuple[str, int], bytes] = {}
        self.marker: bytes | None = None
        self.results: dict[tuple[str, int], MinuteResult] = {}
        self.reported_losses: defaultdict[tuple[str, str], set[Id]] = defaultdict(set)

    def snapshot(self) -> None:
        mesh = self.mesh
        self.ledger.begin(
            OffsetSnapshot(
                mesh.now_ms * 1000,
                len(mesh.logs["accepted"]),
                dict(mesh.committed),
                {topic: len(mesh.logs[topic]) for topic in TOPICS},
            )
        )

    def read(self, topic: str, limit: int) -> None:
        rows = self.mesh.logs[topic][self.position[topic] : self.position[topic] + limit]
        self.ledger.take(topic, rows)
        self.position[topic] += len(rows)

    def settle(self) -> None:
        if not self.ledger.reached:
            return
        results = self.ledger.settle()
        marker = orjson.dumps(self.ledger.marker())
        for minute_result in results:
            key = (minute_result.pipe_minute.pipe, minute_result.pipe_minute.minute)
            self.results[key] = minute_result
            for missing in minute_result.unresolved:
                if missing.state == "lost":
                    self.reported_losses[missing.hop, missing.destination].update(missing.ids)
            self.pipe_minutes[key] = orjson.dumps(minute_result.pipe_minute.dump())
            if self.restarts and self.chance.random() < 0.05:
                self.restart()  # it died in the middle of writing: the marker stays the old one
                return
        self.marker = marker

    def restart(self) -> None:
        if self.marker is None:
            self.ledger = PartitionLedger(0, RULES)
            self.ledger.positions = dict.fromkeys(TOPICS, 0)
            self.ledger.pipe_minutes = {
                key: PipeMinute.load(*key, orjson.loads(text)) for key, text in self.pipe_minutes.items()
            }
        else:
            pipe_minutes = [
                PipeMinute.load(*key, orjson.loads(text)) for key, text in self.pipe_minutes.items()
            ]
            self.ledger = PartitionLedger.resume(0, RULES, orjson.loads(self.marker), pipe_minutes)
        self.position = dict.fromkeys(TOPICS, 0) | self.ledger.positions

    def finish(self) -> None:
        """Read everything and close everything."""
        self.restarts = False
        self.mesh.now_ms += 1_000_000
        for _ in range(2):
            self.snapshot()
            for topic in TOPICS:
                self.read(topic, 1_000_000)
            assert self.ledger.reached
            self.settle()


def run(seed: int, *, steps: int, restarts: bool, **faults: Any) -> Observer:
    mesh = Mesh(seed, **faults)
    chance = random.Random(seed + 1)
    observer = Observer(mesh, chance, restarts=restarts)
    for _ in range(steps):
        mesh.now_ms += chance.choice((0, 100, 5_000))
        match chance.randrange(8):
            case 0 | 1:
                mesh.accept(chance.randrange(30))
            case 2:
                mesh.tell()
            case 3 | 4:
                mesh.work(chance.choice(list(READS)), chance.randrange(1, 60))
            case 5:
                observer.settle()
                observer.snapshot()
            case 6:
                for topic in chance.sample(TOPICS, len(TOPICS)):
                    observer.read(topic, chance.randrange(1, 200))
                observer.settle()
            case _ if chance.random() < 0.1:
                mesh.restart_ingest(drained=chance.random() < 0.5)
            case _ if restarts and chance.random() < 0.2:
                observer.restart()
    mesh.tell()
    mesh.drain()
    observer.finish()
    return observer


def lost_of(minute_result: MinuteResult) -> dict[tuple[str, str], set[Id]]:
    return {
        (missing.hop, missing.destination): set(missing.ids)
        for missing in minute_result.unresolved
        if missing.state == "lost"
    }


def check(observer: Observer) -> None:
    mesh = observer.mesh
    mesh.index()
    keys = {(pipe, minute) for pipe, minute, _ in mesh.acknowledged} | set(observer.results)
    for pipe, minute in keys:
        minute_result = observer.ledger.look(observer.ledger.pipe_minutes[pipe, minute])
        assert lost_of(minute_result) == mesh.lost(pipe, minute), (pipe, minute)
        assert {missing.state for missing in minute_result.unresolved} <= {"lost"}
        counts = minute_result.counts
        for hop, topic in (("ingest", "raw"), ("normalize", "normalized"), ("enrich", "enriched")):
            assert counts[hop, "", "out"] == len(mesh.ids(pipe, minute, topic)), (hop, pipe, minute)
            assert minute_result.pipe_minute.copies[EventStage(topic)] == mesh.surplus(pipe, minute, topic)
        sizes = (size_of(event) for event in mesh.ids(pipe, minute, "raw"))
        assert minute_result.pipe_minute.bytes == sum(sizes), (pipe, minute)
        bucket_counts = sum(minute_result.pipe_minute.watched.counts.values(), Counter())
        assert bucket_counts == mesh.buckets(pipe, minute), (pipe, minute)
        duplicate_ids = mesh.ids(pipe, minute, "receipts", "", "duplicate")
        assert counts["normalize", "", "duplicate"] == len(duplicate_ids)
        for name in ("a", "b"):
            delivered_ids = mesh.ids(pipe, minute, "receipts", name, "delivered")
            assert counts["egest", name, "delivered"] == len(delivered_ids)
    for hop_key, reported_ids in observer.reported_losses.items():
        assert reported_ids <= mesh.dropped[hop_key], f"false loss at {hop_key}"


@pytest.mark.parametrize("examples", [40, pytest.param(250, marks=pytest.mark.more)])
def test_exactly_the_lost_ids_are_reported_whatever_happens(examples: int) -> None:
    @settings(max_examples=examples, suppress_health_check=[HealthCheck.too_slow])
    @given(seed=st.integers(0, 2**32), steps=st.integers(20, 160), restarts=st.booleans())
    def holds(seed: int, steps: int, restarts: bool) -> None:
        check(run(seed, steps=steps, restarts=restarts))

    holds()


@pytest.mark.parametrize("examples", [10, pytest.param(50, marks=pytest.mark.more)])
def test_with_nothing_dropped_nothing_is_ever_said_to_be_lost(examples: int) -> None:
    @settings(max_examples=examples, suppress_health_check=[HealthCheck.too_slow])
    @given(seed=st.integers(0, 2**32))
    def holds(seed: int) -> None:
        observer = run(seed, steps=200, restarts=True, drop=0.0, crash=0.3)
        assert not observer.reported_losses
        check(observer)

    holds()


@pytest.mark.parametrize(
    ("count", "dropped_counts"),
    [(10_000, (1, 7, 100)), pytest.param(100_000, (1, 7, 1000), marks=pytest.mark.more)],
)
def test_1_and_7_and_1000_of_100000_dropped_are_named_at_exactly_their_hops(
    count: int, dropped_counts: tuple[int, int, int]
) -> None:
    mesh = Mesh(1, drop=0.0, copy=0.0, crash=0.0)
    observer = Observer(mesh, random.Random(1))
    for _ in range(count // 1000):
        mesh.accept(1000)
        mesh.now_ms += 1000
        mesh.tell()
    egest_numbers = [number for number in range(count) if not mesh.ends_before_egest(number)]
    sampled_numbers = iter(mesh.random.sample(egest_numbers, sum(dropped_counts)))
    victims = {
        topic: set(islice(sampled_numbers, number))
        for topic, number in zip(("raw", "normalized", "enriched"), dropped_counts, strict=True)
    }
    original_outputs = mesh._outputs

    def outputs(topic: str, headers: dict[str, bytes]) -> list[tuple[str, dict[str, bytes]]]:
        epoch, sequence = id_of(headers)
        if sequence in victims.get(topic, ()):
            mesh.dropped[READS[topic], ""].add((epoch, sequence))
            return []
        return original_outputs(topic, headers)

    mesh._outputs = outputs  # type: ignore[method-assign] # a mesh that forgets some records
    mesh.drain()
    observer.finish()
    lost_ids: dict[str, set[Id]] = defaultdict(set)
    for minute_result in observer.results.values():
        for missing in minute_result.unresolved:
            lost_ids[missing.hop] |= set(missing.ids)
    assert lost_ids == {hop: mesh.dropped[hop, ""] for hop in ("normalize", "enrich", "egest")}
    assert tuple(len(lost_ids[hop]) for hop in ("normalize", "enrich", "egest")) == dropped_counts
