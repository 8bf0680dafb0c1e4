"""Progress of a table in a log of the stream: the snapshot's property `hifi.offsets.<log>`. Pure.

It is committed together with the data, so that each event is in the table once, whenever the service is killed. As in
egest, a record of a partition is a first copy exactly when its offset in `raw` is above all offsets before it. Each
colour of a stream, and a stream that is made anew, has a log of its own, whose offsets begin at 0; so each log has its
own properties, and every snapshot those of all logs.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import orjson

OFFSETS: Final = "hifi.offsets."
"""Prefix of the name of a property of a snapshot, before the log: JSON object, partition to `[next, raw]`."""
WRITER: Final = "hifi.writer."
"""The same, of the run of the service that committed last for the log."""
SETTLED_UNTIL: Final = "hifi.settled-until."
"""The same, of the pipe's watermark before the snapshot; snapshots that do not state it have none."""


class PartitionProgress(NamedTuple):
    """Progress of a table in one partition."""

    next: int = 0
    """Offset in `enriched` of the first record that is not decided yet."""
    raw: int = -1
    """Highest offset in `raw` of the rows; the deduplicator's watermark."""


@dataclass(frozen=True, slots=True)
class TableProgress:
    """Progress of a table."""

    partitions: Mapping[int, PartitionProgress] = field(default_factory=dict)

    def get(self, partition: int) -> PartitionProgress:
        """The progress in a partition."""
        return self.partitions.get(partition, PartitionProgress())

    def advanced(self, end_offsets: Mapping[int, int], rows: Mapping[int, int]) -> "TableProgress":
        """The progress after a batch.

        Args:
            end_offsets: partition to the offset after the last record of the batch.
            rows: partition to the highest offset in `raw` of the new rows.
        """
        partitions = dict(self.partitions)
        for partition, end in end_offsets.items():
            before = self.get(partition)
            partitions[partition] = PartitionProgress(
                max(before.next, end), max(before.raw, rows.get(partition, -1))
            )
        return TableProgress(partitions)

    def within(self, offsets: Mapping[int, int]) -> bool:
        """Whether the table includes no record at or above these offsets of `enriched`."""
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
        """The progress that `dump` wrote."""
        return cls({int(key): PartitionProgress(*values) for key, values in orjson.loads(text).items()})


def progress_at(history: Iterable[str | None], offsets: Mapping[int, int]) -> TableProgress:
    """The progress that a table had when a query committed these offsets of `enriched`.

    Args:
        history: properties with the offsets of the log in the snapshots, newest first; None: a snapshot without.
        offsets: partition to the committed offset.
    """
    for text in history:
        if text is not None and (progress := TableProgress.load(text)).within(offsets):
            return progress
    return TableProgress()
