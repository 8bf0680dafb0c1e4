"""Recognize copies of source events in a partition of `raw` by the highest position of each source partition. Pure.

A reader of a source that starts again goes back to its committed position, and writes events to `raw` that are there
already. It begins a new run. In the order of `raw`, an event is a copy exactly when its position is not above the
highest one before the run of its reader began.

normalize itself goes back, too. The decision on a record depends only on the run that its offset lies in and on the
highest position before that run. Both are kept, so the decision is the same each time, although the positions that are
written down may be ahead of the committed offset.
"""

from collections.abc import Iterable
from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec
import orjson
from typing_extensions import TypedDict

from hifi.record.record import Record
from hifi.record.source_position import LAST_POSITION, SourcePosition

_NOTHING: Final = -1
_MOST: Final = int(LAST_POSITION)
_Number: TypeAlias = Annotated[int, msgspec.Meta(ge=_NOTHING)]


class SourceRun(NamedTuple):
    """A stretch of `raw` in which all events of a source partition come from one run of its reader."""

    first: int
    """Offset in `raw` of its first event."""
    run: str
    """See `SourcePosition.run`."""
    highest_before: int
    """The highest position before it; -1: there was none."""


class _Body(TypedDict):
    """The value of a record of the topic `source-positions`, JSON."""

    highest: _Number
    through: _Number
    runs: list[tuple[_Number, str, _Number]]


_BODY: Final = msgspec.json.Decoder(_Body)


class _SourcePartition:
    """One source partition: its highest position, and the runs that may be read again."""

    __slots__ = ("highest", "last_offset", "runs")

    def __init__(self, highest: int = _NOTHING, last_offset: int = _NOTHING) -> None:
        self.highest = highest
        self.last_offset = last_offset
        """Offset in `raw` of the last event in these figures."""
        self.runs: list[SourceRun] = []

    def run_at(self, offset: int, reader_run: str) -> SourceRun:
        """The run that an event belongs to; a new one begins if its reader has changed.

        Args:
            offset: of the event in `raw`.
            reader_run: of its reader.
        """
        for source_run in reversed(self.runs):
            if source_run.first <= offset:
                if source_run.run == reader_run:
                    return source_run
                break
        new_run = SourceRun(offset, reader_run, self.highest)
        self.runs.append(new_run)
        self.runs.sort()
        return new_run

    def forget(self, committed: int) -> None:
        """Drop runs that ended before the committed offset, from which on records may be read again."""
        while len(self.runs) > 1 and self.runs[1].first <= committed:
            del self.runs[0]


class SourcePositions:
    """The positions of all source partitions in one partition of `raw`, and the keys of those not written yet."""

    def __init__(self) -> None:
        self._partitions: dict[bytes, _SourcePartition] = {}
        self.unwritten: set[bytes] = set()
        """Keys of the records to write."""

    def __len__(self) -> int:
        return len(self._partitions)

    def is_copy(self, pipe: str, position: SourcePosition, offset: int) -> bool:
        """Whether an event was read from its source before; its position is kept.

        Args:
            pipe: of the event.
            position: of the event.
            offset: in `raw`. Events come in the order of their offsets.
        """
        key = b"%b;%b" % (pipe.encode(), position.source)
        partition = self._partitions.get(key)
        if partition is None:
            partition = self._partitions[key] = _SourcePartition()
        source_run = partition.run_at(offset, position.run.decode())
        partition.highest = max(partition.highest, position.position)
        partition.last_offset = max(partition.last_offset, offset)
        self.unwritten.add(key)
        return position.position <= source_run.highest_before

    def take_unwritten(self, committed: int) -> tuple[set[bytes], list[Record]]:
        """The keys that have changed since the last call, and their records for the topic `source-positions`.

        Args:
            committed: offset in `raw` below which nothing is read again.
        """
        records = list(self._records(self.unwritten, committed))
        keys, self.unwritten = self.unwritten, set()
        return keys, records

    def load(self, key: bytes | None, value: bytes | None) -> None:
        """Take over a record that a previous owner wrote, unless a newer one is known.

        Raises:
            ValueError: it is not the record of a source partition; nothing was taken over.
        """
        if key is None or value is None:
            raise ValueError("it has no key or no value")
        body = _BODY.decode(value)
        runs = [SourceRun(*source_run) for source_run in body["runs"]]
        run_numbers = (number for run in runs for number in (run.first, run.highest_before))
        if max(body["highest"], body["through"], *run_numbers) > _MOST:
            raise ValueError(f"a number of it is above {_MOST}")
        loaded_partition = self._partitions.get(key)
        if loaded_partition is not None and loaded_partition.last_offset > body["through"]:
            return
        partition = self._partitions[key] = _SourcePartition(body["highest"], body["through"])
        partition.runs = runs

    def _records(self, keys: Iterable[bytes], committed: int) -> Iterable[Record]:
        for key in sorted(keys):
            partition = self._partitions[key]
            partition.forget(committed)
            body: _Body = {
                "highest": partition.highest,
                "through": partition.last_offset,
                "runs": [(run.first, run.run, run.highest_before) for run in partition.runs],
            }
            yield Record(key, orjson.dumps(body), [])
