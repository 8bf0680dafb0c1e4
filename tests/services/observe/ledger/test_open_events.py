"""The watermark of a simulated mesh with known faults never says that an event is settled that is not."""

import random
from collections import defaultdict
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.observe.simulated_mesh import DESTINATIONS, READS, TOPICS, Id, Mesh, id_of

from hifi.record.fields import fields
from hifi.record.headers import DESTINATION, OUTCOME, TO
from hifi.runtime.trusted_clock import ClockReading, TrustedClock
from hifi_observe.ledger.closing import ClosingRules, OffsetSnapshot
from hifi_observe.ledger.open_events import OpenEvents
from hifi_observe.ledger.partition_ledger import PartitionLedger
from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.ledger.record_batch import RecordGroup
from hifi_observe.ledger.stage import EventStage

pytestmark = pytest.mark.timeout(900)
RULES = ClosingRules(settle_s=20, amend_s=100_000, follow_s=1_000_000)
PIPES = ("flights", "orders")


class Truth:
    """Events that were acknowledged, with times, and those that have their outcome, by plain sets over the logs."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self.acknowledged: list[tuple[int, str, Id]] = []
        """Time in microseconds, pipe, and identity, in the order of the times."""
        self._read_offsets = dict.fromkeys(TOPICS, 0)
        self._settled_everywhere: set[Id] = set()
        self._settled_at: defaultdict[str, set[Id]] = defaultdict(set)
        self._handed_over: defaultdict[str, set[Id]] = defaultdict(set)
        self._on_raw: dict[Id, int] = {}

    def acknowledge(self, first: int) -> None:
        """The events of `raw` from an offset on were acknowledged now."""
        for row in self._mesh.logs["raw"][first:]:
            headers = fields(row.headers)
            if id_of(headers) not in self._on_raw:
                self._on_raw[id_of(headers)] = row.offset
                pipe = headers["hifi_pipe"].decode()
                self.acknowledged.append((self._mesh.now_ms * 1000, pipe, id_of(headers)))

    def without_outcome(self, pipe: str, destination: str, before_us: int, *, first_pass: bool) -> list[Id]:
        """Events that were acknowledged before a time and are not settled at a destination."""
        self._follow()
        settled_ids = self._settled_everywhere | self._settled_at[destination]
        if first_pass:
            settled_ids |= self._handed_over[destination]
        return [
            event
            for at_us, event_pipe, event in self.acknowledged
            if at_us < before_us and event_pipe == pipe and event not in settled_ids
        ]

    def _follow(self) -> None:
        for topic in TOPICS:
            log = self._mesh.logs[topic]
            for row in log[self._read_offsets[topic] :]:
                self._take(topic, fields(row.headers))
            self._read_offsets[topic] = len(log)

    def _take(self, topic: str, headers: dict[str, bytes]) -> None:
        if topic not in ("enriched", "receipts", "dead-letter") and not topic.startswith("retry-in"):
            return
        event, name = id_of(headers), headers.get(DESTINATION, b"").decode()
        if topic == "enriched":
            for destination in set(DESTINATIONS) - set(headers[TO].decode().split(",")):
                self._settled_at[destination].add(event)
        elif topic == "dead-letter" or headers.get(OUTCOME) in (b"delivered", b"filtered", b"duplicate"):
            (self._settled_at[name] if name else self._settled_everywhere).add(event)
        elif topic.startswith("retry-in"):
            self._handed_over[name].add(event)


class Watcher:
    """Drives a ledger over a mesh as observe does, with a clock of its own that is set and drifts."""

    def __init__(self, mesh: Mesh, chance: random.Random) -> None:
        self.mesh, self.chance, self.truth = mesh, chance, Truth(mesh)
        self.skew_ms = 0
        self.clock = TrustedClock()
        self.published: dict[tuple[str, str], tuple[int, int]] = {}
        self.statements = 0
        self.pipe_minutes: dict[tuple[str, int], bytes] = {}
        self.marker = b'{"minute": -1, "through": {}, "restart": {}}'
        self.restart()

    def restart(self) -> None:
        """Die, and start again from the published records."""
        pipe_minutes = [PipeMinute.load(*key, orjson.loads(text)) for key, text in self.pipe_minutes.items()]
        self.ledger = PartitionLedger.resume(0, RULES, orjson.loads(self.marker), pipe_minutes)
        self.position = dict.fromkeys(TOPICS, 0) | self.ledger.positions
        self.ledger.positions = dict(self.position)
        self.clock = TrustedClock()

    def reading(self) -> ClockReading:
        return ClockReading(self.mesh.now_ms * 1000, (self.mesh.now_ms + self.skew_ms) * 1000)

    def confirm(self) -> None:
        clock_reading = self.reading()
        self.mesh.now_ms += self.chance.choice((0, 1, 50))
        append_ms = self.mesh.now_ms
        self.mesh.now_ms += self.chance.choice((0, 1, 200))
        self.clock.confirm(clock_reading, append_ms, self.reading().monotonic_us)

    def ask_end(self, run_between: Any) -> None:
        """Ask for the end of `raw`; `run_between` is called before Kafka answers."""
        asked_us = self.clock.time_us(self.reading())
        run_between()
        if asked_us is not None:
            position = self.ledger.positions["raw"]
            self.ledger.open_events.note_end(asked_us, len(self.mesh.logs["raw"]), position)

    def read(self, topic: str, limit: int) -> None:
        rows = self.mesh.logs[topic][self.position[topic] : self.position[topic] + limit]
        self.ledger.take(topic, rows)
        self.position[topic] += len(rows)

    def close(self) -> None:
        """Close minutes at a snapshot, if it is reached; then begin the next one."""
        if self.ledger.reached:
            for minute_result in self.ledger.settle():
                pipe_minute = minute_result.pipe_minute
                key = (pipe_minute.pipe, pipe_minute.minute)
                self.pipe_minutes[key] = orjson.dumps(pipe_minute.dump())
                if self.chance.random() < 0.02:
                    return self.restart()  # before it could write the marker
            self.marker = orjson.dumps(self.ledger.marker())
        if not self.ledger.busy:
            mesh = self.mesh
            end_offsets = {topic: len(mesh.logs[topic]) for topic in TOPICS}
            committed = dict(mesh.committed)
            self.ledger.begin(
                OffsetSnapshot(mesh.now_ms * 1000, end_offsets["accepted"], committed, end_offsets)
            )
        return None

    def publish(self) -> None:
        """Look at what is open, and hold what is published against the truth."""
        looks = self.ledger.open_events.look(lambda _: DESTINATIONS)
        reached_us = self.ledger.open_events.frontier.reached_us
        for pipe in PIPES:
            for name in DESTINATIONS:
                open_at = looks.get(pipe, {}).get(name)
                open_times_us = (
                    (reached_us, reached_us)
                    if open_at is None
                    else (open_at.settled_us, open_at.first_pass_us)
                )
                published_times_us = self.published.get((pipe, name), (0, 0))
                settled_us, first_pass_us = (
                    max(open_times_us[0], published_times_us[0]),
                    max(open_times_us[1], published_times_us[1]),
                )
                self.published[pipe, name] = settled_us, first_pass_us
                self.statements += settled_us > published_times_us[0]
                unsettled = self.truth.without_outcome(pipe, name, settled_us, first_pass=False)
                assert not unsettled, (pipe, name, settled_us, unsettled[:3])
                unsettled = self.truth.without_outcome(pipe, name, first_pass_us, first_pass=True)
                assert not unsettled, (pipe, name, first_pass_us, unsettled[:3])
            self.ledger.open_events.published_us[pipe] = max(
                self.published[pipe, name][0] for name in DESTINATIONS
            )

    def accept(self, count: int) -> None:
        """Events that were accepted a while ago, and are acknowledged now."""
        first_offset = len(self.mesh.logs["raw"])
        delay_ms = self.chance.choice((0, 3, 2_000))
        self.mesh.now_ms -= delay_ms
        self.mesh.accept(count)
        self.mesh.now_ms += delay_ms
        for row in self.mesh.logs["raw"][first_offset:]:
            row.timestamp = self.mesh.now_ms
        self.truth.acknowledge(first_offset)


def run(  # noqa: C901, PLR0912 - one case for each thing that may happen
    seed: int, *, steps: int, restarts: bool, steps_of_clock: bool, **faults: Any
) -> Watcher:
    mesh, chance = Mesh(seed, **faults), random.Random(seed + 1)
    watcher = Watcher(mesh, chance)
    for _ in range(steps):
        mesh.now_ms += chance.choice((0, 0, 1, 100, 700, 5_000))
        match chance.randrange(12):
            case 10 | 11:  # a calm moment, in which most comes to its end
                for topic in (*READS, *READS):
                    mesh.work(topic, 1000)
                watcher.confirm()
                watcher.ask_end(lambda: watcher.accept(chance.randrange(3)))
                for topic in TOPICS:
                    watcher.read(topic, 1000)
            case 0 | 1:
                watcher.accept(chance.randrange(30))
            case 2:
                mesh.tell()
                watcher.confirm()
            case 3 | 4 | 5:
                mesh.work(chance.choice(list(READS)), chance.randrange(1, 60))
            case 6:
                watcher.ask_end(lambda: watcher.accept(chance.randrange(8)))
            case 7:
                watcher.close()
            case 8:
                for topic in chance.sample(TOPICS, len(TOPICS)):
                    watcher.read(topic, chance.randrange(1, 200))
            case _ if restarts and chance.random() < 0.1:
                watcher.restart()
            case _ if steps_of_clock and chance.random() < 0.2:
                watcher.skew_ms = chance.choice((0, -10_000, -700, 700, 10_000, 3_600_000))
            case _ if chance.random() < 0.1:
                mesh.restart_ingest(drained=chance.random() < 0.5)
        watcher.publish()
    return watcher


@pytest.mark.parametrize("examples", [20, pytest.param(1000, marks=pytest.mark.more)])
def test_no_event_acknowledged_before_a_published_time_lacks_its_outcome(examples: int) -> None:
    @settings(max_examples=examples, suppress_health_check=[HealthCheck.too_slow], deadline=None)
    @given(
        seed=st.integers(0, 2**32),
        steps=st.integers(20, 200),
        restarts=st.booleans(),
        steps_of_clock=st.booleans(),
        drop=st.sampled_from((0.0, 0.01)),
    )
    def holds(seed: int, steps: int, restarts: bool, steps_of_clock: bool, drop: float) -> None:
        run(seed, steps=steps, restarts=restarts, steps_of_clock=steps_of_clock, drop=drop, crash=0.2)

    holds()


@pytest.mark.parametrize("seed", range(8))
def test_it_comes_up_to_now_once_everything_has_its_outcome(seed: int) -> None:
    watcher = run(seed, steps=150, restarts=seed % 2 == 0, steps_of_clock=False, drop=0.0)
    assert watcher.statements > 10, "the watermark stood still, so nothing was tested"
    mesh = watcher.mesh
    mesh.tell()
    mesh.drain()
    watcher.confirm()
    mesh.now_ms += 10
    asked_us = watcher.reading().wall_us
    watcher.ask_end(lambda: None)
    for topic in TOPICS:
        watcher.read(topic, 1_000_000)
    watcher.publish()
    assert set(watcher.published.values()) == {(asked_us, asked_us)}
    assert not watcher.ledger.open_events.look(lambda _: DESTINATIONS)


class Reader:
    """Gives events of one pipe minute to `OpenEvents`, second by second."""

    def __init__(self) -> None:
        self.events = OpenEvents()
        self.pipe_minute = PipeMinute("flights", 1)
        self.next = self.delivered = 0

    def ask_end(self, second: int) -> None:
        self.events.note_end(second * 1_000_000, self.next, self.next)

    def read(self, *destinations: str) -> int:
        """An event that these destinations want; returns its sequence."""
        group = RecordGroup((EventStage("raw"),), "e")
        group.offsets.append(self.next)
        group.sequences.append(self.next)
        self.events.begin(self.next, self.next + 1)
        self.events.add(self.pipe_minute, group)
        self.pipe_minute.span("enriched", self.next)
        stages = [EventStage("raw"), EventStage("normalized"), EventStage("enriched")]
        self.pipe_minute.show(
            [*stages, *(EventStage("wanted", name) for name in destinations)], "e", [self.next]
        )
        self.next += 1
        return self.next - 1

    def deliver(self, destination: str, *sequences: int) -> None:
        self.delivered += 1
        self.pipe_minute.span("receipts", self.delivered)
        self.pipe_minute.show([EventStage("delivered", destination)], "e", list(sequences))

    def settled_s(self) -> dict[str, float]:
        """Destination to the time that is settled there, seconds, where anything is open."""
        opens = self.events.look(lambda _: DESTINATIONS).get("flights", {})
        return {name: open_at.settled_us / 1e6 for name, open_at in opens.items()}


def test_an_event_that_follows_within_the_same_time_is_not_taken_for_settled() -> None:
    reader = Reader()
    reader.ask_end(1)
    first_sequence = reader.read("a", "b")
    reader.deliver("a", first_sequence)
    assert reader.settled_s() == {"b": 1}
    reader.read("a", "b")
    reader.ask_end(2)
    assert reader.settled_s() == {"a": 1, "b": 1}


def test_pieces_that_are_joined_keep_what_is_open_and_the_earliest_time() -> None:
    reader, sequences = Reader(), []
    for second in range(1, 500):
        reader.ask_end(second)
        sequences.append(reader.read("a", "b"))
        if second % 2:
            reader.deliver("a", sequences[-1])
        settled_s = reader.settled_s()
        assert settled_s["b"] == 1
        assert second == 1 or 1 <= settled_s["a"] <= 2, "joined with the piece before at most"
    assert len(reader.events._pieces["flights"]) <= 32
    opens = reader.events.look(lambda _: DESTINATIONS)["flights"]
    assert (opens["a"].numbers["egest"], opens["b"].numbers["egest"]) == (249, 499)
    reader.deliver("b", *sequences)
    assert set(reader.settled_s()) == {"a"}
    reader.deliver("a", *sequences)
    assert reader.settled_s() == {}
    reader.ask_end(500)
    assert reader.events.frontier.reached_us == 500_000_000


def test_an_event_that_an_ack_report_names_but_raw_does_not_have_holds_the_watermark() -> None:
    reader = Reader()
    reader.ask_end(1)
    reader.pipe_minute.show_range(EventStage("accepted"), "e", 0, 1)
    reader.events.reported(reader.pipe_minute)
    reader.deliver("a", reader.read("a"))
    assert reader.settled_s() == {}, "raw may not be read far enough yet"
    reader.ask_end(2)
    assert reader.settled_s() == {"a": 0, "b": 0}
    reader.deliver("a", reader.read("a"))
    assert reader.settled_s() == {}


def test_events_of_minutes_that_are_not_followed_hold_it() -> None:
    ledger = PartitionLedger(0, ClosingRules(settle_s=0, amend_s=60))
    mesh = Mesh(1, drop=0.0, copy=0.0)
    mesh.accept(5)
    ledger.closed_minute = mesh.now_ms // 60_000 + 10
    ledger.open_events.note_end(1_000_000, 5, 0)
    ledger.take("raw", mesh.logs["raw"])
    assert ledger.open_events.holds.pipes.total() == 5
    looks = ledger.open_events.look(lambda _: DESTINATIONS)
    assert {open_at.settled_us for opens in looks.values() for open_at in opens.values()} == {0}


def test_late_events_are_named() -> None:
    mesh = Mesh(1, drop=0.0, copy=0.0)
    ledger = PartitionLedger(0, RULES)
    second_us = mesh.now_ms * 1000
    ledger.open_events.note_end(second_us + 5_000_000, 0, 0)
    ledger.open_events.published_us = {"flights": second_us + 1, "orders": second_us}
    mesh.accept(40)
    ledger.take("raw", mesh.logs["raw"])
    assert {pipe: len(events) for pipe, events in ledger.open_events.late.items()} == {
        "flights": sum(fields(row.headers)["hifi_pipe"] == b"flights" for row in mesh.logs["raw"])
    }


def test_after_the_clock_was_set_back_it_is_unknown_when_open_events_were_acknowledged() -> None:
    reader = Reader()
    reader.ask_end(10)
    event = reader.read("a", "b")
    assert reader.settled_s() == {"a": 10, "b": 10}
    reader.ask_end(5)
    assert reader.settled_s() == {"a": 0, "b": 0}
    reader.deliver("a", event)
    reader.deliver("b", event)
    assert reader.settled_s() == {}
    assert reader.events.frontier.reached_us == 5_000_000


def test_an_event_whose_receipts_are_read_before_enriched_is_open_where_it_turns_out_to_be_wanted() -> None:
    reader = Reader()
    reader.ask_end(1)
    group = RecordGroup((EventStage("raw"),), "e")
    group.offsets.append(0)
    group.sequences.append(0)
    reader.events.begin(0, 1)
    reader.events.add(reader.pipe_minute, group)
    reader.pipe_minute.show([EventStage("raw"), EventStage("normalized")], "e", [0])
    reader.deliver("a", 0)
    assert reader.events.look(lambda _: ("a",)) == {}
    assert reader.settled_s() == {"b": 1}, "declared meanwhile"
    reader.pipe_minute.span("enriched", 0)
    reader.pipe_minute.show(
        [EventStage("enriched"), EventStage("wanted", "a"), EventStage("wanted", "b")], "e", [0]
    )
    assert set(reader.events.look(lambda _: ("a",))["flights"]) == {"b"}
    reader.deliver("b", 0)
    assert reader.settled_s() == {}
    assert not reader.events._pieces
