"""How far a table is: what a snapshot's property `hifi.offsets` says. Pure.

It is committed together with the data, so that each event is in the table once, whenever the service is killed. As in
egest, a record of a partition is a first copy exactly when its offset in `raw` is above all offsets before it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import orjson

OFFSETS: Final = "hifi.offsets"
"""Property of a snapshot: JSON object, partition to `[next, raw, accepted_us]`."""
WRITER: Final = "hifi.writer"
"""Property of a snapshot: the run of the service that committed it."""


class PartitionProgress(NamedTuple):
    """How far a table is in one partition."""

    next: int = 0
    """Offset in `enriched` of the first record that is not decided yet."""
    raw: int = -1
    """Highest offset in `raw` of the rows; the deduplicator's watermark."""
    accepted_us: int = -1
    """Newest accepted time of the rows, microseconds since 1970 UTC. A row with a newer one is no copy, even if its
    offset in `raw` is not above: the topic was created again."""


@dataclass(frozen=True, slots=True)
class TableProgress:
    """How far a table is."""

    partitions: Mapping[int, PartitionProgress] = field(default_factory=dict)

    def get(self, partition: int) -> PartitionProgress:
        """The progress in a partition."""
        return self.partitions.get(partition, PartitionProgress())

    def advanced(self, ends: Mapping[int, int], rows: Mapping[int, tuple[int, int]]) -> "TableProgress":
        """The progress after a batch.

        Args:
            ends: partition to the offset after the last record of the batch.
            rows: partition to the highest offset in `raw` and the newest accepted time of the new rows.
        """
        made = dict(self.partitions)
        for partition, end in ends.items():
            before = self.get(partition)
            raw, accepted_us = rows.get(partition, (-1, -1))
            made[partition] = PartitionProgress(
                max(before.next, end), max(before.raw, raw), max(before.accepted_us, accepted_us)
            )
        return TableProgress(made)

    def within(self, offsets: Mapping[int, int]) -> bool:
        """Whether it is not beyond these offsets of `enriched`, so that no later record is part of it."""
        return all(self.get(partition).next <= offset for partition, offset in offsets.items())

    def dump(self) -> str:
        """The value of the snapshot's property."""
        return orjson.dumps(
            {
                str(key): list(partition_progress)
                for key, partition_progress in sorted(self.partitions.items())
            }
        ).decode()

    @classmethod
    def load(cls, text: str) -> "TableProgress":
        """What `dump` wrote."""
        return cls({int(key): PartitionProgress(*values) for key, values in orjson.loads(text).items()})


def progress_at(history: Iterable[str | None], offsets: Mapping[int, int]) -> TableProgress:
    """The progress that a table had when a query committed these offsets of `enriched`.

    Args:
        history: properties `hifi.offsets` of the snapshots, newest first; None: a snapshot of another writer.
        offsets: partition to the committed offset.
    """
    for text in history:
        if text is not None and (progress := TableProgress.load(text)).within(offsets):
            return progress
    return TableProgress()
