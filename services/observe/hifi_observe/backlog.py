"""Records of a topic that its reading node has not committed past, in 24 bytes each."""

from array import array
from collections import Counter, deque
from typing import Final

from hifi_observe.cell import Cell
from hifi_observe.ids import IdSet
from hifi_observe.stage import Stage

_CHUNK: Final = 4096


class _Chunk:
    __slots__ = ("append_ms", "group", "groups", "numbers", "offsets", "sequences", "start")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.append_ms = array("q")
        self.sequences = array("q")
        self.group = array("H")
        self.groups: list[tuple[Cell, Stage, str]] = []
        self.numbers: dict[tuple[Cell, Stage, str], int] = {}
        self.start = 0


class Backlog:
    """A queue by offset; the head leaves when the node commits past it."""

    def __init__(self) -> None:
        self._chunks: deque[_Chunk] = deque()
        self.committed = -1
        """The offset that the node committed last; -1: none yet."""
        self.waiting: Counter[tuple[str, str]] = Counter()
        """Pipe and destination (or empty) to records that wait."""

    def put(self, offset: int, append_ms: int, cell: Cell, stage: Stage, epoch: str, sequence: int) -> None:
        """A record was read. Offsets ascend."""
        chunk = self._chunks[-1] if self._chunks else None
        if chunk is None or len(chunk.offsets) >= _CHUNK:
            chunk = _Chunk()
            self._chunks.append(chunk)
        group = (cell, stage, epoch)
        number = chunk.numbers.get(group)
        if number is None:
            number = chunk.numbers[group] = len(chunk.groups)
            chunk.groups.append(group)
        self.waiting[cell.pipe, stage.who] += 1
        chunk.offsets.append(offset)
        chunk.append_ms.append(append_ms)
        chunk.sequences.append(sequence)
        chunk.group.append(number)

    def commit(self, committed: int) -> None:
        """The node committed: tell the cells whose records it passed. A commit backwards changes nothing."""
        self.committed = max(self.committed, committed)
        while self._chunks:
            chunk = self._chunks[0]
            gone: dict[int, list[int]] = {}
            index, length = chunk.start, len(chunk.offsets)
            while index < length and chunk.offsets[index] < committed:
                gone.setdefault(chunk.group[index], []).append(chunk.sequences[index])
                index += 1
            for number, sequences in gone.items():
                cell, stage, epoch = chunk.groups[number]
                cell.pass_by(stage, epoch, sequences)
                self.waiting[cell.pipe, stage.who] -= len(sequences)
            chunk.start = index
            if index < length:
                return
            self._chunks.popleft()

    def holding(self, cell: Cell, stage: Stage) -> IdSet:
        """Identities of a cell that wait here."""
        held = IdSet()
        for chunk in self._chunks:
            for number, (other, at, epoch) in enumerate(chunk.groups):
                if other is cell and at == stage:
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
