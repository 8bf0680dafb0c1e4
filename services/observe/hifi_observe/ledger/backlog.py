"""Records of a topic that its reading service has not committed past, in 24 bytes each (32 on `normalized`)."""

from array import array
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from typing import Final, NamedTuple, TypeAlias

from hifi_observe.ledger.id_set import IdSet
from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.ledger.record_batch import RecordColumns, RecordGroup
from hifi_observe.ledger.stage import EventStage

_CHUNK: Final = 4096
_RecordKey: TypeAlias = tuple[PipeMinute, EventStage, str]
"""Pipe minute, stage and epoch of a record."""


class BacklogState(NamedTuple):
    """Number and age of the records of a topic that its reading service has still to process."""

    records: int
    """Records that are not processed yet."""
    uncommitted: int
    """Records that are processed, but whose offsets are not committed yet."""
    seconds: float
    """Age of the first record that is not processed, since its append; 0 if there is none."""


class _Chunk:
    __slots__ = ("append_ms", "group", "groups", "numbers", "offsets", "raw_offsets", "sequences", "start")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.append_ms = array("q")
        self.sequences = array("Q")
        self.raw_offsets = array("q")
        self.group = array("H")
        self.groups: list[_RecordKey] = []
        self.numbers: dict[_RecordKey, int] = {}
        self.start = 0

    def extend(self, columns: RecordColumns, start: int, end: int) -> None:
        self.offsets.fromlist(columns.offsets[start:end])
        self.append_ms.fromlist(columns.append_ms[start:end])
        self.sequences.fromlist(columns.sequences[start:end])
        self.raw_offsets.fromlist(columns.raw_offsets[start:end])
        if columns.sole_group is not None:
            self.group.extend(array("H", [self._number(columns.sole_group)]) * (end - start))
            return
        members = columns.groups[start:end]
        numbers = {group: self._number(group) for group in set(members)}
        self.group.extend(map(numbers.__getitem__, members))

    def sequences_of_groups(self, end: int) -> dict[int, list[int]]:
        """Number of each group to the sequences of its records from the start to before an index."""
        sequences = self.sequences[self.start : end].tolist()
        if len(self.groups) == 1:
            return {0: sequences} if sequences else {}
        by_group: dict[int, list[int]] = {}
        for number, sequence in zip(self.group[self.start : end], sequences, strict=True):
            by_group.setdefault(number, []).append(sequence)
        return by_group

    def _number(self, group: RecordGroup) -> int:
        assert group.pipe_minute is not None
        record_key = group.pipe_minute, group.stages[0], group.epoch
        number = self.numbers.get(record_key)
        if number is None:
            number = self.numbers[record_key] = len(self.groups)
            self.groups.append(record_key)
        return number


class Backlog:
    """A queue in offset order; records leave it when the service commits past them."""

    def __init__(self, kind: str = "") -> None:
        """Make an empty queue.

        Args:
            kind: of the stages that are marked as passed; empty: as they were read.
        """
        self._kind = kind
        self._chunks: deque[_Chunk] = deque()
        self.committed = -1
        """The offset that the service committed last; -1: none yet."""
        self.processed_raw_offset = -1
        """Records with up to this offset in `raw` are processed, as the service's output shows; -1: unknown."""
        self._queued: Counter[tuple[str, str]] = Counter()
        """Pipe and destination (or empty) to records in the queue."""

    def put(self, columns: RecordColumns) -> None:
        """Add records that were read. Offsets ascend; every group has its pipe minute."""
        start, total = 0, len(columns.offsets)
        counts = Counter(columns.groups) if columns.sole_group is None else {columns.sole_group: total}
        for group, count in counts.items():
            assert group.pipe_minute is not None
            self._queued[group.pipe_minute.pipe, group.stages[0].destination] += count
        while start < total:
            chunk = self._chunks[-1] if self._chunks else None
            if chunk is None or len(chunk.offsets) >= _CHUNK:
                chunk = _Chunk()
                self._chunks.append(chunk)
            end = min(total, start + _CHUNK - len(chunk.offsets))
            chunk.extend(columns, start, end)
            start = end

    def processed(self, raw_offset: int) -> None:
        """The service's output contains the record with this offset in `raw`; it works in the order of these."""
        self.processed_raw_offset = max(self.processed_raw_offset, raw_offset)

    def commit(self, committed: int) -> None:
        """Remove the records below the committed offset and mark them as passed in their pipe minutes.

        A commit backwards changes nothing.
        """
        self.committed = max(self.committed, committed)
        while self._chunks:
            chunk = self._chunks[0]
            end = bisect_left(chunk.offsets, committed, chunk.start)
            for number, sequences in chunk.sequences_of_groups(end).items():
                pipe_minute, stage, epoch = chunk.groups[number]
                passed_stage = stage._replace(kind=self._kind) if self._kind else stage
                pipe_minute.pass_by(passed_stage, epoch, sequences)
                self._queued[pipe_minute.pipe, stage.destination] -= len(sequences)
            chunk.start = end
            if end < len(chunk.offsets):
                return
            self._chunks.popleft()

    def holding(self, pipe_minute: PipeMinute, stage: EventStage) -> IdSet:
        """Identities of a pipe minute whose records of a stage are in the queue."""
        ids = IdSet()
        for chunk in self._chunks:
            for group_number, (group_minute, group_stage, epoch) in enumerate(chunk.groups):
                if group_minute is pipe_minute and group_stage == stage:
                    indexes = range(chunk.start, len(chunk.offsets))
                    ids.add(
                        epoch,
                        [chunk.sequences[index] for index in indexes if chunk.group[index] == group_number],
                    )
        return ids

    @property
    def head(self) -> int | None:
        """The first offset that is not committed past; None if there is none."""
        return self._chunks[0].offsets[self._chunks[0].start] if self._chunks else None

    def waiting(self) -> Counter[tuple[str, str]]:
        """Pipe and destination (or empty) to records that are not processed yet, without zeros."""
        waiting = +self._queued
        for chunk in self._chunks:
            first_index = self._first_waiting(chunk)
            for number, records in Counter(chunk.group[chunk.start : first_index]).items():
                pipe_minute, stage, _ = chunk.groups[number]
                waiting[pipe_minute.pipe, stage.destination] -= records
            if first_index < len(chunk.offsets):
                break
        return +waiting

    def _first_waiting(self, chunk: _Chunk) -> int:
        """Index of the first record of a chunk that is not processed yet."""
        if not chunk.raw_offsets:
            return chunk.start
        return bisect_right(chunk.raw_offsets, self.processed_raw_offset, chunk.start)

    def state(self, now_ms: int) -> BacklogState:
        """The records that are to be processed, and those that are only uncommitted."""
        uncommitted, first_ms = 0, None
        for chunk in self._chunks:
            first_index = self._first_waiting(chunk)
            uncommitted += first_index - chunk.start
            if first_index < len(chunk.offsets):
                first_ms = chunk.append_ms[first_index]
                break
        seconds = 0.0 if first_ms is None else max(0.0, (now_ms - first_ms) / 1000)
        return BacklogState(len(self) - uncommitted, uncommitted, seconds)

    def __len__(self) -> int:
        return sum(len(chunk.offsets) - chunk.start for chunk in self._chunks)
