"""Events of one pipe, one minute and one partition: which identities were seen at which stage."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

from hifi_observe.ledger.id_set import IdSet
from hifi_observe.ledger.sketch import Sketch
from hifi_observe.ledger.stage import ENRICHED, RAW, EventStage
from hifi_observe.ledger.watch_counts import WatchCounts

Count: TypeAlias = tuple[str, str, str]
"""Hop, destination (or empty), field."""
_NO_IDS: Final = IdSet()


class _DumpedSets:
    """Sets of a minute as JSON; `once`: equal ones once, since a record may have no room for one of each stage."""

    def __init__(self, unresolved: IdSet, *, once: bool) -> None:
        self._unresolved = unresolved
        self._once = once
        self._places: dict[tuple[tuple[str, str], ...], int] = {}
        self.dumps: list[dict[str, str]] = []

    def place(self, ids: IdSet) -> int | dict[str, str]:
        """A set; with `once` its place in `dumps`, -1: it is the one of the unresolved events."""
        if self._once and ids == self._unresolved:
            return -1
        dump = ids.dump()
        if not self._once:
            return dump
        place = self._places.setdefault(tuple(sorted(dump.items())), len(self.dumps))
        if place == len(self.dumps):
            self.dumps.append(dump)
        return place


def _set_at(place: int | dict[str, str], dump: Mapping[str, Any]) -> IdSet:
    """A set of its own, of the JSON of a minute."""
    if not isinstance(place, int):
        return IdSet.load(place)
    return IdSet.load(dump["sets"][place] if place >= 0 else dump["unresolved"])


class PipeMinute:
    """Identities by stage while the minute is open; counts and unresolved identities once it is closed."""

    __slots__ = (
        "_counted_offsets",
        "_shares_sets",
        "all_ids",
        "backfill",
        "bytes",
        "changes",
        "copies",
        "dirty",
        "firsts",
        "frozen",
        "lasts",
        "late",
        "may_end",
        "minute",
        "open",
        "passed",
        "pipe",
        "replayed",
        "seen",
        "sketches",
        "unreported",
        "unresolved",
        "version",
        "watched",
    )

    def __init__(self, pipe: str, minute: int) -> None:
        self.pipe = pipe
        self.minute = minute
        self.seen: dict[EventStage, IdSet] = {}
        """Stage to identities seen there. Once closed: only the unresolved ones."""
        self.passed: dict[EventStage, IdSet] = {}
        """Stage to identities whose records the reading service committed past."""
        self.copies: Counter[EventStage] = Counter()
        """Records beyond the first of an event at a stage."""
        self.sketches: dict[str, Sketch] = {}
        """Measure to its distribution."""
        self.firsts: dict[str, int] = {}
        """Topic to the first offset of the minute in it."""
        self.lasts: dict[str, int] = {}
        """Topic to the last offset of the minute in it."""
        self.open = True
        self.frozen: Counter[Count] = Counter()
        """Counts of resolved events."""
        self.unresolved = IdSet()
        self.all_ids = IdSet()
        """Every identity ever seen at any stage; filled when the minute closes."""
        self.replayed: dict[str, IdSet] = {}
        """Destination to identities that were dead-lettered there and delivered by a replay."""
        self.late = IdSet()
        """Events first seen in `raw` after closing."""
        self.may_end = True
        """Whether any unresolved event was not lost when the minute was last closed or amended."""
        self.changes = 0
        """Number of changes to what was seen or is unresolved; what was computed of them is valid until the next."""
        self.version = 0
        """Number of times it was closed or amended."""
        self.dirty = False
        """Whether something arrived after closing that may change the published result."""
        self.unreported = (0, 0)
        """Events in `raw` that no ack report names: unacknowledged ones, and those of incomplete epochs."""
        self.watched = WatchCounts()
        """Events of `enriched` by the buckets of watched fields; copies are not counted."""
        self.backfill = IdSet()
        """Events that collect read while it caught up with a source: they count, but their lags do not."""
        self.bytes = 0
        """Size of the data of the events in `raw`; copies are not counted."""
        self._counted_offsets: dict[str, int] = {}
        self._shares_sets = False
        """Whether equal sets may be one object: see `_share_equal_sets`."""

    def watch(self, revision: int, epoch: str, sequences: list[int], bucket_texts: list[bytes]) -> None:
        """Count the buckets of records of `enriched`; before `show`, which tells copies from events no more.

        Args:
            revision: of the pipe.
            epoch: of the events.
            sequences: of the events.
            bucket_texts: the buckets of each (`hifi.record.headers.WATCH`).
        """
        fresh_texts: dict[int, bytes] = {}
        for sequence, text in zip(sequences, bucket_texts, strict=True):
            if not self.has(ENRICHED, epoch, sequence):
                fresh_texts.setdefault(sequence, text)
        self.watched.add(revision, fresh_texts.values())

    def weigh(self, epoch: str, sequences: list[int], sizes: list[int]) -> None:
        """Count the bytes of records of `raw`; before `show`, as `watch`.

        Args:
            epoch: of the events.
            sequences: of the events.
            sizes: of the data of each, bytes.
        """
        if not self.all_ids and self.seen.get(EventStage(RAW), _NO_IDS).has_none_of(epoch, sequences):
            self.bytes += sum(sizes)
            return
        fresh_sizes: dict[int, int] = {}
        for sequence, size in zip(sequences, sizes, strict=True):
            if not self.has(RAW, epoch, sequence):
                fresh_sizes.setdefault(sequence, size)
        self.bytes += sum(fresh_sizes.values())

    def show(self, stages: Iterable[EventStage], epoch: str, sequences: list[int]) -> None:
        """Add events seen at stages."""
        self.changes += 1
        if not self.open:
            self._separate_sets()
            sequences = self._without_copies(stages, epoch, sequences)
            if not sequences:
                return
        for stage in stages:
            ids = self.seen.get(stage)
            if ids is None:
                ids = self.seen[stage] = IdSet()
            fresh_count = ids.add(epoch, sequences)
            if fresh_count != len(sequences):
                self.copies[stage] += len(sequences) - fresh_count

    def show_range(self, stage: EventStage, epoch: str, first_sequence: int, last_sequence: int) -> None:
        """Add a range of events seen at a stage; adding it again counts no copies."""
        self.changes += 1
        ids = IdSet()
        ids.add_range(epoch, first_sequence, last_sequence)
        if not self.open:
            self._separate_sets()
            fresh_ids = ids - self.all_ids
            self.all_ids.update(fresh_ids)
            self.unresolved.update(fresh_ids)
            ids &= self.unresolved
            self.dirty = True
        self.seen.setdefault(stage, IdSet()).update(ids)

    def replay(self, destination: str, epoch: str, sequence: int) -> None:
        """Add the delivery of a replayed dead letter."""
        self.replayed.setdefault(destination, IdSet()).add(epoch, (sequence,))
        self.dirty = self.dirty or not self.open

    def pass_by(self, stage: EventStage, epoch: str, sequences: list[int]) -> None:
        """Mark records of a stage as passed by the commit of the service that reads it."""
        if not self.open:
            sequences = [sequence for sequence in sequences if (epoch, sequence) in self.unresolved]
            if not sequences:
                return
            self.dirty = True
        self.passed.setdefault(stage, IdSet()).add(epoch, sequences)

    def pass_deleted(self, kind: str, read_as: str) -> None:
        """Mark all records of a topic as passed, which Kafka has deleted.

        Args:
            kind: of the topic, and its name.
            read_as: kind of the stages that are marked.
        """
        for stage in [stage for stage in self.seen if stage.kind == kind]:
            self.passed.setdefault(stage._replace(kind=read_as), IdSet()).update(self.seen[stage])
        self.dirty = self.dirty or not self.open
        del self.lasts[kind]

    def measure(self, name: str, values_us: Iterable[int]) -> None:
        """Add durations of a measure, microseconds."""
        sketch = self.sketches.get(name)
        if sketch is None:
            sketch = self.sketches[name] = Sketch()
        sketch.extend(values_us)

    def span(self, topic: str, offset: int) -> None:
        """Extend the range of offsets of this minute in a topic; offsets ascend."""
        self.firsts.setdefault(topic, offset)
        self.lasts[topic] = offset

    def begin_again(self, topic: str) -> None:
        """A topic is read from its beginning again: offsets in it so far mean nothing."""
        for offsets in (self.firsts, self.lasts, self._counted_offsets):
            offsets.pop(topic, None)
        self.dirty = self.dirty or not self.open  # what is published still has those offsets

    @property
    def offsets(self) -> dict[str, tuple[int, int]]:
        """Topic to the first and the last offset of this minute in it."""
        return {topic: (self.firsts[topic], last_offset) for topic, last_offset in self.lasts.items()}

    def close(self, counts: Mapping[Count, int], unresolved: IdSet, positions: Mapping[str, int]) -> None:
        """Freeze the counts of resolved events and keep the identities of the others.

        Args:
            counts: of the identity sets, without what was frozen before.
            unresolved: identities in flight, waiting, parked or lost at any hop.
            positions: topic to the next offset that is not counted yet.
        """
        if self.open:
            for ids in self.seen.values():
                self.all_ids.update(ids)
            self.all_ids.compress()
            self.backfill.compress()
            self.open = False
        self.frozen.update(counts)
        self.unresolved = unresolved
        for sets in (self.seen, self.passed):
            for stage in list(sets):
                unresolved_ids = sets[stage] & unresolved
                if unresolved_ids:
                    sets[stage] = unresolved_ids
                else:
                    del sets[stage]
        self._counted_offsets = dict(positions)
        self.version += 1
        self.changes += 1
        self.dirty = False
        self._share_equal_sets()

    def counted_to(self, topic: str) -> int:
        """Records of a topic below this offset are in the published result; after a restart they are read again."""
        return self._counted_offsets.get(topic, -1) if not self.open else -1

    def has(self, kind: str, epoch: str, sequence: int) -> bool:
        """Whether the record of an event on a topic was counted before."""
        identity = (epoch, sequence)
        stage_ids = self.seen.get(EventStage(kind))
        return (stage_ids is not None and identity in stage_ids) or (
            identity in self.all_ids and identity not in self.unresolved
        )

    def size_bytes(self) -> int:
        """Approximate size of the bitmaps, bytes."""
        sets = [*self.seen.values(), *self.passed.values(), self.all_ids, self.unresolved, self.backfill]
        distinct = {id(ids): ids for ids in sets}
        return sum(ids.size_bytes() for ids in distinct.values())

    def dump(self, *, sets_once: bool = False, with_identities: bool = True) -> dict[str, Any]:
        """JSON of a closed minute, from which a restart continues.

        Args:
            sets_once: whether equal sets are in it once, which 0.1.0rc1 cannot read.
            with_identities: whether a restart can amend it; False: it keeps the counts that are published.
        """
        sets = _DumpedSets(self.unresolved, once=sets_once)
        seen, passed = (self.seen, self.passed) if with_identities else ({}, {})
        return {
            "frozen": [[*count, number] for count, number in sorted(self.frozen.items()) if number],
            "copies": [[*stage, number] for stage, number in sorted(self.copies.items())],
            "seen": [[*stage, sets.place(ids)] for stage, ids in sorted(seen.items())],
            "passed": [[*stage, sets.place(ids)] for stage, ids in sorted(passed.items())],
            "sketches": {name: sketch.dump() for name, sketch in sorted(self.sketches.items())},
            "replayed": {name: ids.dump() for name, ids in sorted(self.replayed.items())},
            "unresolved": self.unresolved.dump() if with_identities else {},
            "known": sets.place(self.all_ids) if with_identities else self.all_ids.dump(),
            "sets": sets.dumps,
            "through": self._counted_offsets,
            "firsts": self.firsts,
            "lasts": self.lasts,
            "late": self.late.dump(),
            "unreported": list(self.unreported),
            "version": self.version,
            "watched": self.watched.dump(),
            "backfill": self.backfill.dump(),
            "bytes": self.bytes,
        }

    @classmethod
    def load(cls, pipe: str, minute: int, dump: Mapping[str, Any]) -> "PipeMinute":
        """Restore what `dump` returned."""
        pipe_minute = cls(pipe, minute)
        pipe_minute.open = False
        pipe_minute.frozen = Counter(
            {(hop, destination, field): number for hop, destination, field, number in dump["frozen"]}
        )
        pipe_minute.copies = Counter(
            {
                EventStage(kind, destination, retry_pass): number
                for kind, destination, retry_pass, number in dump["copies"]
            }
        )
        pipe_minute.seen = {
            EventStage(kind, destination, retry_pass): _set_at(ids, dump)
            for kind, destination, retry_pass, ids in dump["seen"]
        }
        pipe_minute.passed = {
            EventStage(kind, destination, retry_pass): _set_at(ids, dump)
            for kind, destination, retry_pass, ids in dump["passed"]
        }
        pipe_minute.sketches = {name: Sketch.load(sketch) for name, sketch in dump["sketches"].items()}
        pipe_minute.replayed = {name: IdSet.load(ids) for name, ids in dump["replayed"].items()}
        pipe_minute.unresolved = IdSet.load(dump["unresolved"])
        pipe_minute.all_ids = _set_at(dump["known"], dump)
        pipe_minute._counted_offsets = dict(dump["through"])
        pipe_minute.firsts, pipe_minute.lasts = dict(dump["firsts"]), dict(dump["lasts"])
        pipe_minute.late, pipe_minute.version = IdSet.load(dump["late"]), dump["version"]
        pipe_minute.watched = WatchCounts.load(dump.get("watched", ()))
        pipe_minute.backfill = IdSet.load(dump.get("backfill", {}))
        pipe_minute.unreported = (dump["unreported"][0], dump["unreported"][1])
        pipe_minute.bytes = dump.get("bytes", 0)
        pipe_minute._share_equal_sets()
        return pipe_minute

    def _share_equal_sets(self) -> None:
        """Keep the unresolved identities once: most sets of a closed minute are equal to them.

        A destination that is parked for a month leaves tens of thousands of minutes with eight such sets each.
        """
        self._shares_sets = True
        for sets in (self.seen, self.passed):
            for stage in [stage for stage, ids in sets.items() if ids == self.unresolved]:
                sets[stage] = self.unresolved
        if self.all_ids == self.unresolved:
            self.all_ids = self.unresolved

    def _separate_sets(self) -> None:
        """Give each set an object of its own, before identities are added that were not unresolved."""
        if not self._shares_sets:
            return
        self._shares_sets = False
        self.seen = {stage: ids.copy() for stage, ids in self.seen.items()}
        self.passed = {stage: ids.copy() for stage, ids in self.passed.items()}
        self.all_ids = self.all_ids.copy()

    def _without_copies(self, stages: Iterable[EventStage], epoch: str, sequences: list[int]) -> list[int]:
        """After closing: keep unresolved and new identities, count every other one as a copy."""
        self.dirty = True
        kept_sequences, copies = [], 0
        for sequence in sequences:
            identity = (epoch, sequence)
            if identity in self.unresolved:
                kept_sequences.append(sequence)
            elif identity in self.all_ids:
                copies += 1
            else:
                kept_sequences.append(sequence)
                self.all_ids.add(epoch, (sequence,))
                self.unresolved.add(epoch, (sequence,))
        if copies:
            for stage in stages:
                self.copies[stage] += copies
        if RAW in {stage.kind for stage in stages}:
            raw_ids = self.seen.get(EventStage(RAW), IdSet())
            late_sequences = [sequence for sequence in kept_sequences if (epoch, sequence) not in raw_ids]
            self.late.add(epoch, late_sequences)
        return kept_sequences
