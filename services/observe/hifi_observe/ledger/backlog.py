"""Records of a topic that its reading service has not committed past, in 24 bytes each."""

from array import array
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Sequence
from typing import Final, TypeAlias

from hifi_observe.ledger.id_set import IdSet
from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.ledger.record_batch import RecordGroup
from hifi_observe.ledger.stage import Stage

_CHUNK: Final = 4096
Row: TypeAlias = tuple[int, int, int, RecordGroup]
"""Offset, append time in milliseconds, sequence, and what it shows."""


class _Chunk:
    __slots__ = ("append_ms", "group", "groups", "numbers", "offsets", "sequences", "start")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.append_ms = array("q")
        self.sequences = array("q")
        self.group = array("H")
        self.groups: list[tuple[PipeMinute, Stage, str]] = []
        self.numbers: dict[tuple[PipeMinute, Stage, str], int] = {}
        self.start = 0

    def extend(self, rows: Sequence[Row]) -> None:
        offsets, append_ms, sequences, groups = zip(*rows, strict=True)
        self.offsets.extend(offsets)
        self.append_ms.extend(append_ms)
        self.sequences.extend(sequences)
        numbers = {group: self._number(group) for group in set(groups)}
        self.group.extend(map(numbers.__getitem__, groups))

    def _number(self, group: RecordGroup) -> int:
        known = group.pipe_minute, group.stages[0], group.epoch
        number = self.numbers.get(known)
        if number is None:
            number = self.numbers[known] = len(self.groups)
            self.groups.append(known)
        return number


class Backlog:
    """A queue by offset; the head leaves when the service commits past it."""

    def __init__(self) -> None:
        self._chunks: deque[_Chunk] = deque()
        self.committed = -1
        """The offset that the service committed last; -1: none yet."""
        self.waiting: Counter[tuple[str, str]] = Counter()
        """Pipe and destination (or empty) to records that wait."""

    def put(self, rows: Sequence[Row]) -> None:
        """Records were read. Offsets ascend."""
        for group, count in Counter([row[3] for row in rows]).items():
            self.waiting[group.pipe_minute.pipe, group.stages[0].destination] += count
        while rows:
            chunk = self._chunks[-1] if self._chunks else None
            if chunk is None or len(chunk.offsets) >= _CHUNK:
                chunk = _Chunk()
                self._chunks.append(chunk)
            room = _CHUNK - len(chunk.offsets)
            chunk.extend(rows[:room])
            rows = rows[room:]

    def commit(self, committed: int) -> None:
        """The service committed: tell the cells whose records it passed. A commit backwards changes nothing."""
        self.committed = max(self.committed, committed)
        while self._chunks:
            chunk = self._chunks[0]
            end = bisect_left(chunk.offsets, committed, chunk.start)
            gone: dict[int, list[int]] = {}
            passed = zip(chunk.group[chunk.start : end], chunk.sequences[chunk.start : end], strict=True)
            for number, sequence in passed:
                gone.setdefault(number, []).append(sequence)
            for number, sequences in gone.items():
                pipe_minute, stage, epoch = chunk.groups[number]
                pipe_minute.pass_by(stage, epoch, sequences)
                self.waiting[pipe_minute.pipe, stage.destination] -= len(sequences)
            chunk.start = end
            if end < len(chunk.offsets):
                return
            self._chunks.popleft()

    def holding(self, pipe_minute: PipeMinute, stage: Stage) -> IdSet:
        """Identities of a cell that wait here."""
        held = IdSet()
        for chunk in self._chunks:
            for number, (other, at, epoch) in enumerate(chunk.groups):
                if other is pipe_minute and at == stage:
                    indexes = range(chunk.start, len(chunk.offsets))
                    held.add(epoch, [chunk.sequences[i] for i in indexes if chunk.group[i] == number])
        return held

    @property
    def head(self) -> int | None:
        """The first offset that waits."""
        return self._chunks[0].offsets[self._chunks[0].start] if self._chunks else None

    def waiting_s(self, now_ms: int) -> float:
        """Age of the head since it was appended, seconds; 0 when nothing waits."""
        if not self._chunks:
            return 0.0
        return max(0.0, (now_ms - self._chunks[0].append_ms[self._chunks[0].start]) / 1000)

    def __len__(self) -> int:
        return sum(len(chunk.offsets) - chunk.start for chunk in self._chunks)
