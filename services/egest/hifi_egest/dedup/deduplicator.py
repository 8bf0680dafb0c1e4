"""Which records of a source partition are copies, and what must survive a takeover to know it: pure.

Services keep the order within a partition, and each rewind goes back to a committed point and leaves no gap. So along a
line (all of `enriched`, or what comes from one retry topic) a record is a first copy exactly when its rank, its
offset where the line begins, is above all ranks before it: one number a line, however long the rewind. The numbers
travel in the commit's metadata, as they were at the committed offset and not as they are now.

What the last owner finished beyond its commit is read from what it wrote (`Done`). The metadata says from where on:
`floors` are ends of those topics, taken before the first record that is not committed was read.
"""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

import orjson

WINDOW: Final = 4096
"""Records that a copy with a rank of its own (of a producer made anew) may lie behind the first, at least."""
_CHUNK_BITS: Final = 10


class Copy(Enum):
    """What a record is."""

    FIRST = "first"
    COPY = "copy"
    RESET = "reset"
    """A first one whose rank is not above: the topic where its line begins was made anew."""


class Done:
    """Outcomes that are written already, for records that are read again: (offset, destination).

    Bits in chunks, so a day of outcomes takes little. The destination b"" stands for the whole record.
    """

    def __init__(self) -> None:
        self._chunks: dict[tuple[bytes, int], int] = {}
        self.last = -1
        """The highest offset with an outcome."""

    def add(self, offset: int, destination: bytes) -> None:
        """An outcome was found."""
        place = destination, offset >> _CHUNK_BITS
        self._chunks[place] = self._chunks.get(place, 0) | 1 << (offset & (1 << _CHUNK_BITS) - 1)
        self.last = max(self.last, offset)

    def has(self, offset: int, destination: bytes) -> bool:
        """Whether the delivery of that record has its outcome."""
        bits = self._chunks.get((destination, offset >> _CHUNK_BITS), 0)
        return bool(bits >> (offset & (1 << _CHUNK_BITS) - 1) & 1)


@dataclass(slots=True)
class Memory:
    """What a commit's metadata says.

    Attributes:
        tops: highest rank of each line.
        newest_us: highest accepted time, microseconds since 1970 UTC.
        floors: topic to the offset from which on outcomes of uncommitted records may be found.
    """

    tops: dict[str, int] = field(default_factory=dict)
    newest_us: int = 0
    floors: dict[str, int] = field(default_factory=dict)

    @classmethod
    def read(cls, metadata: str) -> "Memory | None":
        """Of the last commit; None where nobody said anything.

        An operator who moves the group's offsets by hand leaves no metadata: what is read again is delivered again.
        """
        try:
            known = orjson.loads(metadata)
            return cls(dict(known["tops"]), int(known["newest"]), dict(known["floors"]))
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            return None

    def written(self) -> str:
        """As metadata."""
        return orjson.dumps({"tops": self.tops, "newest": self.newest_us, "floors": self.floors}).decode()


class Once:
    """The copies of one partition during one assignment. Records come in the order of their offsets."""

    def __init__(self, memory: Memory, done: Done, *, window: int = WINDOW) -> None:
        """Go on from where the last owner was.

        Args:
            memory: of the last commit.
            done: what was written for records that come again.
            window: see WINDOW.
        """
        self._committed = memory
        self._done = done
        self._tops = dict(memory.tops)
        self._newest_us = memory.newest_us
        self._window = window
        self._seen: set[bytes] = set()
        self._seen_before: set[bytes] = set()
        self._changes: deque[tuple[int, str, int, int]] = deque()
        self._batches: deque[tuple[int, Mapping[str, int]]] = deque()
        self._inherited = memory.floors
        self._last = -1, Copy.FIRST

    def batch(self, first: int, floors: Mapping[str, int]) -> None:
        """A batch is about to be worked on.

        Args:
            first: its first offset.
            floors: ends of the topics of outcomes, taken before this member could write any outcome of the batch.
        """
        self._batches.append((first, floors))

    def remember(self, key: bytes) -> None:
        """Work of a record below the committed offset, so that a copy with a rank of its own is found."""
        self._see(key)

    def judge(self, offset: int, key: bytes, line: str | None, rank: int, accepted_us: int) -> Copy:
        """Whether a record is a first copy.

        Args:
            offset: of the record.
            key: of what is to be done: the same for copies, whatever their rank.
            line: on which ranks ascend; None: none, the key alone counts.
            rank: the offset where the line begins.
            accepted_us: when ingest accepted the event, microseconds since 1970 UTC.

        Returns:
            The same when asked again for the last offset, so that a step that failed on a record can be repeated.
        """
        if offset != self._last[0]:
            self._last = offset, self._judge(offset, key, line, rank, accepted_us)
        return self._last[1]

    def metadata_at(self, offset: int) -> str:
        """What a commit of this offset has to say. The offsets asked for never go back."""
        memory = self._committed
        changes, batches = self._changes, self._batches
        while changes and changes[0][0] < offset:
            _, line, memory.tops[line], memory.newest_us = changes.popleft()
        while len(batches) > 1 and batches[1][0] <= offset:
            batches.popleft()
        if offset <= self._done.last:
            memory.floors = dict(self._inherited)
        elif batches:
            memory.floors = dict(batches[0][1])
        return memory.written()

    def _judge(self, offset: int, key: bytes, line: str | None, rank: int, accepted_us: int) -> Copy:
        verdict = Copy.FIRST
        if line is not None:
            if rank <= self._tops.get(line, -1):
                # A copy was accepted when its first was, and that one counted in `newest`.
                if accepted_us <= self._newest_us:
                    return Copy.COPY
                verdict = Copy.RESET
            self._tops[line] = rank
            self._newest_us = max(self._newest_us, accepted_us)
            self._changes.append((offset, line, rank, self._newest_us))
        if key in self._seen or key in self._seen_before:
            return Copy.COPY
        self._see(key)
        return verdict

    def _see(self, key: bytes) -> None:
        self._seen.add(key)
        if len(self._seen) > self._window:
            self._seen, self._seen_before = set(), self._seen
