"""A record gets the same stamp however often it is read: watermarks follow the records, commits and restarts."""

import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field

import pytest

from hifi.kafka.adaptive_fetcher import LogEnd
from hifi.pipe.step_inputs import MAX_KEPT_BYTES
from hifi_normalize.stamps.partition_watermarks import Beat, PartitionWatermarks

ACCEPTED_US = 1_800_000_000_000_000
ACCEPTED_MS = ACCEPTED_US // 1000
PIPES = ("a", "b", "c")


def started(metadata: str = "", *pipes: str, offset: int = 0) -> PartitionWatermarks:
    """Watermarks whose decision to stamp the pipes is kept."""
    watermarks = PartitionWatermarks(metadata, 0.0)
    watermarks.go_to(offset)
    watermarks.decide_pipes(frozenset(pipes), 1, LogEnd(offset, 0.0), 0.0)
    watermarks.metadata_at(offset)
    watermarks.committed()
    return watermarks


def stamps(watermarks: PartitionWatermarks, first: int, *times_ms: int, pipe: str = "a") -> list[int | None]:
    """Stamps of consecutive events, whose times are relative to their accepted time, milliseconds."""
    watermarks.go_to(first)
    given_stamps = [
        watermarks.stamp(offset, pipe, ACCEPTED_US + time_ms * 1000, ACCEPTED_US, 0.0)
        for offset, time_ms in enumerate(times_ms, first)
    ]
    watermarks.next_offset = first + len(times_ms)
    return [None if stamp is None else stamp - ACCEPTED_MS for stamp in given_stamps]


def test_a_stamp_is_the_highest_time_of_the_earlier_events() -> None:
    assert stamps(started("", "a"), 0, -500, -900, -400, -300, -600) == [None, -500, -500, -400, -300]


def test_an_event_far_in_the_future_or_before_1970_raises_nothing() -> None:
    watermarks = started("", "a")
    assert stamps(watermarks, 0, -ACCEPTED_MS - 1, 5001, 5000, 5001, 6000) == [None, None, None, 5000, 5000]
    assert watermarks.marks == {"a": ACCEPTED_MS + 5000}


def test_pipes_have_watermarks_of_their_own() -> None:
    watermarks = started("", "a", "b")
    assert stamps(watermarks, 0, -5, -3) == [None, -5]
    assert stamps(watermarks, 2, -9, -8, pipe="b") == [None, -9]
    assert stamps(watermarks, 4, -1) == [-3]


def test_records_that_are_read_again_get_the_stamps_that_they_had() -> None:
    watermarks = started("", "a")
    first_stamps = stamps(watermarks, 0, -9, -8, -7, -6, -5)
    metadata = watermarks.metadata_at(2)
    assert stamps(watermarks, 3, -6, -5) == first_stamps[3:]
    assert stamps(PartitionWatermarks(metadata, 0.0), 2, -7, -6, -5) == first_stamps[2:]
    assert stamps(watermarks, 2, -7, -6, -5) == first_stamps[2:]


def test_an_idle_pipe_beats_with_its_idle_time_and_later_events_are_stamped_from_it() -> None:
    watermarks = started("", "a", "b")
    stamps(watermarks, 0, -600_000)
    assert watermarks.decide_beats(0, LogEnd(1, 0.0), 2.0) == [Beat("b", None)], "its event is not committed"
    assert watermarks.decide_beats(1, LogEnd(2, 0.0), 2.0) == [], "there is a record that was not stamped"
    assert watermarks.decide_beats(1, LogEnd(1, 0.0), 0.9) == []
    assert watermarks.decide_beats(1, LogEnd(1, 0.5), 3.0) == [Beat("a", ACCEPTED_MS - 597_500)]
    assert watermarks.unsure == {"a"}
    assert watermarks.decide_beats(1, LogEnd(1, 0.0), 9.0) == [], "the last one is not kept yet"
    metadata = watermarks.metadata_at(1)
    watermarks.committed()
    assert stamps(watermarks, 1, -590_000) == [-597_500]
    assert stamps(PartitionWatermarks(metadata, 0.0), 1, -590_000) == [-597_500]


def test_of_two_colours_no_stamp_is_before_the_acceptance_and_an_idle_pipe_follows_the_clock() -> None:
    metadata = started("", "a", "b").metadata_at(0)
    watermarks = PartitionWatermarks(metadata, 0.0, by_clock=True)
    assert stamps(watermarks, 0, -600_000, 3_000, -7, 6_000) == [0, 0, 3_000, 3_000]
    beats = watermarks.decide_beats(4, LogEnd(4, 0.5), 60.0, ACCEPTED_MS + 60_000)
    assert beats == [Beat("a", ACCEPTED_MS + 59_500), Beat("b", ACCEPTED_MS + 59_500)]


def test_a_decision_beyond_the_committed_offset_holds_from_its_own_offset_on_after_a_restart() -> None:
    watermarks = started("", "a", "b")
    stamps(watermarks, 0, -100)
    stamps(watermarks, 1, -50, -40, pipe="b")
    [beat] = watermarks.decide_beats(1, LogEnd(3, 0.0), 5.0)
    metadata = watermarks.metadata_at(1)
    watermarks.committed()
    expected = stamps(watermarks, 3, -30)
    assert expected == [beat.stamp_ms and beat.stamp_ms - ACCEPTED_MS] == [4900]
    restarted = PartitionWatermarks(metadata, 0.0)
    assert stamps(restarted, 1, -50, -40, pipe="b") == [None, -50]
    assert restarted.later_at == 3
    restarted.go_to(3)
    assert stamps(restarted, 3, -30) == expected


def test_a_pipe_that_is_not_stamped_any_more_has_no_watermark_after_the_commit() -> None:
    watermarks = started("", "a", "b")
    stamps(watermarks, 0, -100)
    watermarks.metadata_at(0)
    watermarks.decide_pipes({"b"}, 0, None, 0.0)
    assert "a" in watermarks.marks, "an instance with older pipes decides nothing"
    watermarks.decide_pipes({"b"}, 2, None, 0.0)
    assert watermarks.marks == {"b": None}
    assert watermarks.unsure == {"a"}
    restarted = PartitionWatermarks(watermarks.metadata_at(0), 0.0)
    assert stamps(restarted, 0, -100) == [None]
    restarted.go_to(1)
    assert restarted.marks == {"b": None}
    assert '"a"' not in watermarks.metadata_at(1)


def test_no_more_pipes_are_stamped_than_a_commit_has_room_for() -> None:
    pipe_names = {f"pipe-with-a-long-name-{number:03}" for number in range(100)}
    watermarks = PartitionWatermarks("", 0.0)
    watermarks.go_to(10**18)
    watermarks.decide_pipes(pipe_names, 10**6, LogEnd(10**18, 0.0), 0.0)
    left_out = pipe_names - watermarks.marks.keys()
    assert 0 < len(left_out) < 70
    assert len(watermarks.metadata_at(10**18)) < MAX_KEPT_BYTES
    watermarks.committed()
    for index, name in enumerate(sorted(pipe_names - left_out)):
        watermarks.stamp(10**18 + index, name, ACCEPTED_US, ACCEPTED_US, 0.0)
    watermarks.next_offset = 10**18 + 100
    watermarks.metadata_at(10**18 + 99)
    assert len(watermarks.decide_beats(10**18 + 100, LogEnd(10**18 + 100, 0.0), 9.0)) == 100 - len(left_out)
    assert MAX_KEPT_BYTES * 0.8 < len(watermarks.metadata_at(10**18 + 99)) <= MAX_KEPT_BYTES


@pytest.mark.parametrize("metadata", ["", "17", "{}", '{"marks":[]}', "not json"])
def test_what_is_no_metadata_of_normalize_is_no_watermark(metadata: str) -> None:
    watermarks = PartitionWatermarks(metadata, 0.0)
    assert (watermarks.in_use, watermarks.metadata_at(0)) == (False, "")


@dataclass
class Partition:
    """A partition of `raw`, and the normalizes that have read it."""

    log: list[tuple[str, int]] = field(default_factory=list)
    """Pipe and event time of each record, milliseconds before its accepted time."""
    stamps: defaultdict[int, set[int | None]] = field(default_factory=lambda: defaultdict(set))
    beats: list[tuple[Beat, int]] = field(default_factory=list)
    """With the number of records before it."""
    metadata: str = ""
    committed: int = 0
    now_s: float = 0.0
    pipes: frozenset[str] = frozenset(PIPES[:2])
    pipes_offset: int = 0
    published: bool = False
    by_clock: bool = False

    def restart(self) -> None:
        self.watermarks = PartitionWatermarks(self.metadata, self.now_s, by_clock=self.by_clock)
        self.floor = self.position = self.committed

    def read(self, count: int, *, fails: bool = False) -> None:
        """Stamp records; without their output if the handler fails."""
        end = min(self.position + count, len(self.log))
        if self.position == end:
            return
        self.watermarks.go_to(self.position)
        for offset in range(self.position, end):
            pipe, age_ms = self.log[offset]
            if pipe in self.watermarks.unsure:
                end = offset
                break
            if offset >= self.watermarks.later_at:
                self.watermarks.go_to(offset)
            time_us = ACCEPTED_US - age_ms * 1000
            stamp = (
                self.watermarks.stamp(offset, pipe, time_us, ACCEPTED_US, self.now_s)
                if pipe in self.watermarks.marks
                else None
            )
            if not fails:
                self.stamps[offset].add(stamp)
        if not fails:
            self.position = self.watermarks.next_offset = end

    def again(self, back: int) -> None:
        """A handler failed: the records that are not complete are handled again."""
        self.position = max(self.floor, self.position - back)

    def commit(self, behind: int, outcome: str) -> None:
        watermarks = self.watermarks
        if watermarks.next_offset is None:
            watermarks.go_to(self.position)
        offset = self.floor = max(self.floor, self.position - behind)
        beats = []
        if not watermarks.unsure:
            end = LogEnd(len(self.log), 0.0)
            watermarks.decide_pipes(self.pipes, self.pipes_offset, end, self.now_s)
            beats = watermarks.decide_beats(offset, end, self.now_s, ACCEPTED_MS + int(self.now_s * 1000))
        metadata = watermarks.metadata_at(offset)
        if outcome != "failed":
            self.committed, self.metadata = offset, metadata
        if outcome == "kept":
            watermarks.committed()
            self.beats += [(beat, len(self.log)) for beat in beats]
        if outcome == "killed":
            self.restart()


def live(partition: Partition, chance: random.Random) -> None:
    """One step of a partition's life."""
    match chance.choices(
        ("append", "read", "again", "commit", "wait", "restart", "publish"), (8, 8, 1, 6, 4, 1, 0.2)
    ):
        case ["append"]:
            partition.log += [
                (chance.choice(PIPES), chance.randrange(-7000, 60_000)) for _ in range(chance.randrange(4))
            ]
        case ["read"]:
            partition.read(chance.randrange(1, 9), fails=chance.random() < 0.1)
        case ["again"]:
            partition.again(chance.randrange(1, 5))
        case ["commit"]:
            outcome = chance.choice(("kept", "kept", "failed", "killed"))
            partition.commit(chance.choice((0, 0, 1, 3)), outcome)
        case ["wait"]:
            partition.now_s += chance.choice((0.3, 1.5, 20))
        case ["restart"]:
            partition.restart()
        case ["publish"]:
            partition.pipes = frozenset(chance.sample(PIPES, chance.randrange(4)))
            partition.pipes_offset += 1
            partition.published = True


@pytest.mark.parametrize(
    ("first_seed", "by_clock"), [(0, False), (500, False), (1000, False), (16000, False), (0, True)]
)
def test_whatever_fails_each_record_has_one_stamp_and_no_later_one_is_below_a_heartbeat(
    first_seed: int, by_clock: bool
) -> None:
    kinds: Counter[str] = Counter()
    for seed in range(first_seed, first_seed + 500):
        partition, chance = Partition(by_clock=by_clock), random.Random(seed)
        partition.restart()
        for _ in range(60):
            live(partition, chance)
        partition.restart()
        partition.read(len(partition.log))
        different = {offset: given for offset, given in partition.stamps.items() if len(given) > 1}
        assert not different, (seed, different)
        for (pipe, stamp_ms), count in partition.beats:
            kinds["empty beat" if stamp_ms is None else "beat"] += 1
            if stamp_ms is None or partition.published:
                continue
            for offset in range(count, len(partition.log)):
                if partition.log[offset][0] == pipe:
                    [stamp] = partition.stamps[offset]
                    assert stamp is not None, seed
                    assert stamp >= stamp_ms, seed
                    kinds["stamp after a beat"] += 1
    assert min(kinds[kind] for kind in ("beat", "stamp after a beat")) > 50, kinds
    assert (kinds["empty beat"] > 50) is not by_clock, kinds
