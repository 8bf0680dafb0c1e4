"""A log of `enriched` as normalize stamps it: events of two pipes, copies, replays and heartbeats. Plain Python."""

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from hifi.record.cloudevents.timestamps import format_us
from hifi.record.identity import identity_prefix, identity_stem, write_identity
from hifi.record.record import Record

START_MS = 1_780_000_000_000
EPOCH = 0x1234
PIPE = "flights"
OTHER = "other"
"""A pipe that only a join reads."""


@dataclass(slots=True)
class Entry:
    """A record of a partition. `number` identifies the event, for a copy as for its original; None: a heartbeat.

    `valueless` are headers that have no value, which Kafka allows; without `ce_time` its time is that of acceptance.
    `raw_topics` is how often `raw` was created again before.
    """

    number: int | None
    stamp_ms: int | None
    time_ms: int = 0
    accepted_ms: int = 0
    raw: int = -1
    data: Mapping[str, Any] = field(default_factory=dict)
    pipe: str = PIPE
    replay: bool = False
    valueless: tuple[str, ...] = ()
    raw_topics: int = 0

    def record(self) -> Record:
        """The record on `enriched`."""
        stamp = b"" if self.stamp_ms is None else b"%d" % self.stamp_ms
        accepted_us = self.accepted_ms * 1000
        stem = identity_stem(identity_prefix(self.pipe, 1, 1, accepted_us), accepted_us // 60_000_000, EPOCH)
        name, identity = write_identity(stem, self.number or 0)
        if self.number is None:
            return Record(
                None,
                None,
                [(name, identity + b";;heartbeat"), ("hifi_hop", b"%d;;;;;%b" % (accepted_us, stamp))],
            )
        hop = b"%d;%d;shop" % (accepted_us, self.raw) + (b";;;" + stamp if stamp else b"")
        headers = [(name, identity), ("hifi_hop", hop), ("ce_id", b"%d" % self.number)]
        if "ce_time" not in self.valueless:
            headers.append(("ce_time", format_us(self.time_ms * 1000)))
        headers += [(name, None) for name in self.valueless]  # type: ignore[misc]
        if self.replay:
            headers += [("hifi_replay", b"1"), ("hifi_service", b"enrich")]
        return Record(b"k", orjson.dumps(self.data), headers)


class StampedLog:
    """Partitions of `enriched`, written as normalize and enrich do."""

    def __init__(self, partitions: int, pipes: Sequence[str] = (PIPE,), *, by_clock: bool = False) -> None:
        """Begin.

        Args:
            partitions: number.
            pipes: that are stamped.
            by_clock: whether the stream is one of two colours, whose watermarks follow the clock.
        """
        self._by_clock = by_clock
        self.partitions: list[list[Entry]] = [[] for _ in range(partitions)]
        self._marks: dict[str, list[int | None]] = {pipe: [None] * partitions for pipe in pipes}
        self._raws = [0] * partitions
        self._raw_topics = 0
        self._count = 0

    def event(
        self, partition: int, time_ms: int, accepted_ms: int, data: Mapping[str, Any], pipe: str = PIPE
    ) -> Entry:
        """Append an event with its stamp."""
        self._count += 1
        self._raws[partition] += 1
        marks = self._marks.get(pipe)
        mark_ms = None if marks is None else marks[partition]
        if self._by_clock:
            mark_ms = max(mark_ms or 0, accepted_ms)
        raw = self._raws[partition]
        entry = Entry(
            self._count, mark_ms, time_ms, accepted_ms, raw, data, pipe, raw_topics=self._raw_topics
        )
        self.partitions[partition].append(entry)
        if marks is not None and time_ms <= accepted_ms + 5000:
            marks[partition] = time_ms if mark_ms is None else max(mark_ms, time_ms)
        return entry

    def create_raw_again(self) -> None:
        """From now on the offsets in `raw` begin anew."""
        self._raws = [0] * len(self._raws)
        self._raw_topics += 1

    def clock(self, now_ms: int) -> None:
        """Append a heartbeat to each partition, where the watermarks follow the clock."""
        for pipe, marks in self._marks.items():
            for partition, entries in enumerate(self.partitions):
                marks[partition] = mark_ms = max(marks[partition] or 0, now_ms)
                entries.append(Entry(None, mark_ms, accepted_ms=now_ms, pipe=pipe))

    def again(self, partition: int, entry: Entry) -> None:
        """Append a copy, as enrich does after a crash."""
        self.partitions[partition].append(entry)

    def heartbeat(self, partition: int, idle_ms: int = 0) -> None:
        """Append a heartbeat of each pipe of an idle partition, which raises the watermark by the time it was idle."""
        for pipe, marks in self._marks.items():
            mark_ms = marks[partition]
            if mark_ms is not None:
                marks[partition] = mark_ms = mark_ms + idle_ms
            self.partitions[partition].append(Entry(None, mark_ms, accepted_ms=START_MS, pipe=pipe))

    def counted_once(self, partition: int, offsets: Iterable[int] | None = None) -> int:
        """The offset of an event that counts in a window with 5 s of lateness, and has no copy.

        Args:
            partition: of the event.
            offsets: to choose from; None: all.
        """
        entries = self.partitions[partition]
        return next(
            offset
            for offset in (range(len(entries)) if offsets is None else offsets)
            if (entry := entries[offset]).number is not None
            and entry.pipe == PIPE
            and entry.data["carrier"]
            and not entry.data["cancelled"]
            and entry.stamp_ms is not None
            and entry.stamp_ms - 5_000 <= entry.time_ms <= entry.accepted_ms
            and sum(other.number == entry.number for other in entries) == 1
        )

    def ends(self) -> dict[int, int]:
        """Partition to the offset after its last record."""
        return {partition: len(entries) for partition, entries in enumerate(self.partitions)}


def disordered(
    seed: int, partitions: int, events: int, *, empty: Sequence[int] = (), joined: bool = False
) -> StampedLog:
    """A log with disorder, late and future events, events without key, copies, replays and idle partitions.

    Args:
        seed: of all of it.
        partitions: of the log.
        events: how many.
        empty: partitions that get heartbeats only.
        joined: whether the other pipe is stamped, too, and has nearly half of the events.
    """
    chance = random.Random(seed)
    stamped_log = StampedLog(partitions, (PIPE, OTHER) if joined else (PIPE,))
    other_share = 0.4 if joined else 0.1
    used_partitions = [partition for partition in range(partitions) if partition not in empty]
    now_ms = START_MS
    recent: dict[int, list[Entry]] = {partition: [] for partition in used_partitions}
    for _ in range(events):
        now_ms += chance.randrange(0, 400)
        partition = chance.choice(used_partitions)
        kind = chance.random()
        behind_ms = chance.randrange(0, 3_000) if kind < 0.85 else chance.randrange(0, 60_000)
        time_ms = now_ms + 60_000 if kind > 0.99 else now_ms - behind_ms
        data = {
            "carrier": None if chance.random() < 0.03 else chance.choice("ABCDE"),
            "delay": None if chance.random() < 0.05 else chance.randrange(-20, 60),
            "price": chance.choice([1.5, 2.25, 1e3, -0.5]),
            "cancelled": chance.random() < 0.1,
        }
        entry = stamped_log.event(
            partition, time_ms, now_ms, data, OTHER if chance.random() < other_share else PIPE
        )
        recent[partition].append(entry)
        if chance.random() < 0.03:  # a crash of enrich writes the last records again, in their order
            for copy in recent[partition][-3:]:
                stamped_log.again(partition, copy)
        if chance.random() < 0.02:
            replayed = Entry(
                entry.number,
                None,
                entry.time_ms,
                entry.accepted_ms,
                entry.raw,
                entry.data,
                entry.pipe,
                replay=True,
            )
            stamped_log.again(partition, replayed)
        if chance.random() < 0.1:
            for idle in (*empty, *chance.sample(used_partitions, 1)):
                stamped_log.heartbeat(idle, 0 if idle == partition else 500)
    return stamped_log
