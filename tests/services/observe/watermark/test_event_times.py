"""`event_until` over two partitions and two instances that learn of each other late, against a plain oracle."""

import random
from collections import defaultdict
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.services.observe.ledger.test_open_events import PIPES, RULES, Truth
from tests.support.observe.simulated_mesh import DESTINATIONS, READS, TOPICS, Id, Mesh, id_of

from hifi.record.cloudevents.timestamps import parse_us
from hifi.record.fields import fields
from hifi.record.headers import ACCEPTED, PIPE, TIME
from hifi.runtime.trusted_clock import ClockReading
from hifi_observe.ledger.partition_ledger import PartitionLedger
from hifi_observe.watermark.part import RecentFailures, add_up, event_floors, part_of, raise_floors
from hifi_observe.watermark.statement import Watermark, microseconds, state
from hifi_observe.watermark.watermark_store import WatermarkStore, key_of

pytestmark = pytest.mark.timeout(900)
KEYS = [(pipe, name) for pipe in PIPES for name in DESTINATIONS]


class Instance:
    """An instance of observe, whose records reach the others when the test lets them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.skew_ms = 0
        self.ledgers: dict[int, PartitionLedger] = {}
        self.inbox: list[tuple[str, Any, bytes]] = []
        self.store = WatermarkStore(name)

    def take(self, number: int) -> None:
        """Read the records of other instances, in their order."""
        for kind, key, value in self.inbox[:number]:
            if kind == "part":
                self.store.take_part(key, orjson.loads(value))
            else:
                self.store.read(key, value, b"another")
        del self.inbox[:number]


class Observes:
    """Two meshes as partitions, and instances that observe them as the service does."""

    def __init__(self, seed: int, *, clocks: bool, **faults: Any) -> None:
        self.chance, self.clocks = random.Random(seed), clocks
        self.meshes = [Mesh(seed + number, event_times=True, **faults) for number in range(2)]
        self.truths = [Truth(mesh) for mesh in self.meshes]
        self.instances = [Instance(name) for name in "ab"]
        self.owner = [0, 1]
        """Partition to its instance."""
        self.times_us: dict[Id, int] = {}
        self.late: set[Id] = set()
        self.arrived_late: set[Id] = set()
        """Acknowledged after a later event time was published."""
        self.latest: dict[tuple[str, str], tuple[int, int]] = {}
        self.advanced = 0
        for partition in range(2):
            self.move(partition, partition)

    @property
    def now_ms(self) -> int:
        return self.meshes[0].now_ms

    def wait(self, ms: int) -> None:
        for mesh in self.meshes:
            mesh.now_ms += ms

    def move(self, partition: int, instance: int) -> None:
        """Another instance takes a partition over, and reads it from its beginning again."""
        self.instances[self.owner[partition]].ledgers.pop(partition, None)
        self.owner[partition] = instance
        ledger = PartitionLedger(partition, RULES)
        ledger.positions = dict.fromkeys(TOPICS, 0)
        self.instances[instance].ledgers[partition] = ledger

    def ledger(self, partition: int) -> PartitionLedger:
        return self.instances[self.owner[partition]].ledgers[partition]

    def reading(self, instance: Instance) -> ClockReading:
        return ClockReading(self.now_ms * 1000, (self.now_ms + instance.skew_ms) * 1000)

    def confirm(self, instance: Instance) -> None:
        clock_reading = self.reading(instance)
        self.wait(self.chance.choice((0, 1, 20)))
        instance.store.clock.confirm(clock_reading, self.now_ms, self.reading(instance).monotonic_us)

    def accept(self, partition: int, count: int) -> None:
        mesh = self.meshes[partition]
        first_offset = len(mesh.logs["raw"])
        mesh.accept(count)
        for row in mesh.logs["raw"][first_offset:]:
            headers = fields(row.headers)
            event, pipe = id_of(headers), headers[PIPE].decode()
            time_us = min(parse_us(headers[TIME]), int(headers[ACCEPTED]))
            self.times_us[event] = time_us
            if time_us < max(self.latest.get((pipe, name), (0, 0))[0] for name in DESTINATIONS):
                self.arrived_late.add(event)
        self.truths[partition].acknowledge(first_offset)

    def ask_end(self, partition: int) -> None:
        instance, ledger = self.instances[self.owner[partition]], self.ledger(partition)
        asked_us = instance.store.clock.time_us(self.reading(instance))
        self.accept(partition, self.chance.randrange(3))
        if asked_us is not None:
            end = len(self.meshes[partition].logs["raw"])
            ledger.open_events.note_end(asked_us, end, ledger.positions["raw"])

    def read(self, partition: int, topic: str, limit: int) -> None:
        ledger, log = self.ledger(partition), self.meshes[partition].logs[topic]
        ledger.take(topic, log[ledger.positions[topic] : ledger.positions[topic] + limit])

    def round(self, instance: Instance) -> None:
        """Do the work of `WatermarkPublication` at its interval."""
        store, clock_reading = instance.store, self.reading(instance)
        instance_parts = {}
        for partition, ledger in instance.ledgers.items():
            self.note_late(ledger)
            failures = RecentFailures().sample(ledger.live, clock_reading.wall_us)
            part = part_of(
                ledger.open_events, lambda _: DESTINATIONS, failures, store.clock, clock_reading, store.writer
            )
            instance_parts[partition] = part
            store.take_part(partition, part)
        totals = add_up(store.parts.values())
        floors_us = event_floors(store.parts.values(), KEYS, totals, store.event_us())
        for partition, part in instance_parts.items():
            raise_floors(instance.ledgers[partition].open_events.event_times, part, floors_us)
            self.send(instance, "part", partition, part)
        now_us = store.clock.time_us(self.reading(instance))
        for pipe, name in KEYS:
            if self.owner[PIPES.index(pipe)] != self.instances.index(instance):
                continue
            statement = state(
                pipe, name, totals.get((pipe, name)), store.parts, 2, store.published((pipe, name)), now_us
            )
            store.take(statement)
            self.send(instance, "statement", key_of(pipe, name), statement)
            self.judge(statement)

    def note_late(self, ledger: PartitionLedger) -> None:
        for events in ledger.open_events.event_times.late.values():
            for event in events:
                epoch, _, sequence = event.identity.partition(":")
                self.late.add((epoch, int(sequence)))

    def judge_late(self) -> None:
        """Every event that arrived late and was read is named; if observe never began anew."""
        for partition, mesh in enumerate(self.meshes):
            ledger = self.ledger(partition)
            self.note_late(ledger)
            read_ids = {id_of(fields(row.headers)) for row in mesh.logs["raw"][: ledger.positions["raw"]]}
            assert not (self.arrived_late & read_ids) - self.late

    def send(self, instance: Instance, kind: str, key: Any, value: Any) -> None:
        for receiver in self.instances:
            if receiver is not instance:
                receiver.inbox.append((kind, key, orjson.dumps(value)))

    def judge(self, statement: Watermark) -> None:
        """Hold a statement against the truth."""
        key = pipe, name = statement["pipe"], statement["destination"]
        until_us, as_of_us = microseconds(statement["event_until"]), microseconds(statement["event_as_of"])
        if not until_us:
            assert statement["event_because"]
            return
        published_times = self.latest.get(key, (0, 0))
        if not self.clocks and self.owner == [0, 1]:
            assert (until_us, as_of_us) >= published_times
            assert until_us >= published_times[0]
        self.advanced += until_us > published_times[0]
        self.latest[key] = until_us, as_of_us
        for truth in self.truths:
            open_ids = truth.without_outcome(pipe, name, as_of_us, first_pass=False)
            unsettled = [
                event for event in open_ids if self.times_us[event] < until_us and event not in self.late
            ]
            assert not unsettled, (key, statement["event_until"], unsettled[:3])


def run(  # noqa: C901, PLR0912 - one case for each thing that may happen
    seed: int, *, steps: int, moves: bool, clocks: bool, **faults: Any
) -> Observes:
    observes = Observes(seed, clocks=clocks, **faults)
    chance = observes.chance
    for _ in range(steps):
        observes.wait(chance.choice((0, 0, 1, 100, 400, 900)))
        partition, instance = chance.randrange(2), chance.choice(observes.instances)
        match chance.randrange(10):
            case 0 | 1:
                observes.accept(partition, chance.randrange(20))
            case 2:
                observes.meshes[partition].work(chance.choice(list(READS)), chance.randrange(1, 60))
            case 3:
                for topic in (*READS, *READS):
                    observes.meshes[partition].work(topic, 1000)
            case 4:
                observes.ask_end(partition)
            case 5:
                observes.read(partition, chance.choice(TOPICS), chance.randrange(1, 200))
            case 6 if moves and chance.random() < 0.2:
                observes.move(partition, chance.randrange(2))
            case 6 if clocks and chance.random() < 0.3:
                instance.skew_ms = chance.choice((0, -5_000, -300, 300, 5_000, 3_600_000))
            case 6 | 7:  # a calm moment
                for number in range(2):
                    observes.ask_end(number)
                    for topic in TOPICS:
                        observes.read(number, topic, 1000)
            case 8:
                instance.take(chance.randrange(12))
            case _:
                observes.confirm(instance)
                instance.take(1000)
                observes.round(instance)
    if not moves and not clocks:
        observes.judge_late()
    return observes


@pytest.mark.parametrize("examples", [30, pytest.param(2000, marks=pytest.mark.more)])
def test_every_event_below_the_stated_event_time_is_settled_or_named_as_late(examples: int) -> None:
    @settings(max_examples=examples, suppress_health_check=[HealthCheck.too_slow], deadline=None)
    @given(
        seed=st.integers(0, 2**32),
        steps=st.integers(50, 300),
        moves=st.booleans(),
        clocks=st.booleans(),
        drop=st.sampled_from((0.0, 0.01)),
    )
    def holds(seed: int, steps: int, moves: bool, clocks: bool, drop: float) -> None:
        run(seed, steps=steps, moves=moves, clocks=clocks, drop=drop, crash=0.2)

    holds()


@pytest.mark.parametrize("seed", range(8))
def test_it_comes_up_to_the_newest_event_once_all_have_their_outcome(seed: int) -> None:
    observes = run(seed, steps=600, moves=seed % 2 == 0, clocks=False, drop=0.0)
    assert observes.advanced > 5, "it stood still, so nothing was tested"
    assert observes.late, "no event was late, so nothing was tested"
    newest_us: defaultdict[str, int] = defaultdict(int)
    for truth, mesh in zip(observes.truths, observes.meshes, strict=True):
        mesh.drain()
        for _, pipe, event in truth.acknowledged:
            newest_us[pipe] = max(newest_us[pipe], observes.times_us[event])
    for _ in range(3):
        for partition in range(2):
            observes.wait(1)
            ledger = observes.ledger(partition)
            asked_us = observes.instances[observes.owner[partition]].store.clock.time_us(
                observes.reading(observes.instances[observes.owner[partition]])
            )
            assert asked_us is not None
            for topic in TOPICS:
                observes.read(partition, topic, 1_000_000)
            ledger.open_events.note_end(
                asked_us, len(observes.meshes[partition].logs["raw"]), ledger.positions["raw"]
            )
        for instance in observes.instances:
            observes.confirm(instance)
            instance.take(1000)
            observes.round(instance)
    assert {key: until_us for key, (until_us, _) in observes.latest.items()} == {
        (pipe, name): newest_us[pipe] for pipe, name in KEYS
    }


def test_every_event_that_arrives_late_is_named() -> None:
    simulations = [run(seed, steps=300, moves=False, clocks=False, drop=0.0, crash=0.2) for seed in range(20)]
    assert sum(len(observes.arrived_late) for observes in simulations) > 200
