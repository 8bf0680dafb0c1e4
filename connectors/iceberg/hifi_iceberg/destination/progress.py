"""Progress of a destination in its table: the snapshot's property `hifi.offsets.<log>.<pipe>/<destination>`. Pure.

It is committed together with the data, so that each event is in the table once, whenever the service is killed. As in
egest, a record of a partition is a first copy exactly when its offset in `raw` is above all offsets before it. Each
colour of a stream, and a stream that is made anew, has a log of its own, whose offsets begin at 0, and several
destinations may have one table; so each of them has its own properties, and every snapshot those of all.

Releases up to 0.1.0rc2 know one progress of a log, `hifi.offsets.<log>`. It is written beside, and read if one of them
committed last for the log: then the next commit goes on from it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import orjson

OFFSETS: Final = "hifi.offsets."
"""Prefix of the name of a property of a snapshot, before the log: JSON object, partition to `[next, raw]`. Those of a
destination also have the id of the topic `enriched`, as `topic`."""
WRITER: Final = "hifi.writer."
"""The same, of the run of the service that committed last for the log, or for the destination."""
SETTLED_UNTIL: Final = "hifi.settled-until."
"""The same, of the pipe's watermark before the snapshot; snapshots that do not state it have none."""
_TOPIC: Final = "topic"


class TableOwner(NamedTuple):
    """A destination in a log of the stream, which has progress and data files of its own in its table."""

    log: str
    """Identity of the stream's log."""
    pipe: str
    destination: str

    @property
    def offsets_property(self) -> str:
        """Name of the snapshot's property with the progress."""
        return f"{OFFSETS}{self._suffix}"

    @property
    def writer_property(self) -> str:
        """Name of the snapshot's property with the run of the service that committed last."""
        return f"{WRITER}{self._suffix}"

    @property
    def file_prefix(self) -> str:
        """Of the names of folders with data files, after `hifi-`. It begins those of no other owner."""
        return f"{self.log}-{self.pipe}.{self.destination}."

    @property
    def _suffix(self) -> str:
        return f"{self.log}.{self.pipe}/{self.destination}"

    def progress_text(self, properties: Mapping[str, str]) -> str | None:
        """The progress in the properties of a snapshot; None: they have none of this owner."""
        name = self.offsets_property if self._has_owners(properties) else OFFSETS + self.log
        return properties.get(name)

    def is_written_by(self, writer: str, properties: Mapping[str, str]) -> bool:
        """Whether, by the newest properties of its log, no other run has taken the destination over."""
        return self._has_owners(properties) and properties.get(self.writer_property) == writer

    def properties(self, progress: "TableProgress", writer: str, topic: str) -> dict[str, str]:
        """The properties of a snapshot.

        Args:
            progress: that the table has with it.
            writer: the run of the service.
            topic: id of the topic `enriched`; empty: unknown.
        """
        return {
            OFFSETS + self.log: progress.dump(),
            WRITER + self.log: writer,
            self.offsets_property: progress.dump(topic),
            self.writer_property: writer,
        }

    def _has_owners(self, properties: Mapping[str, str]) -> bool:
        """Whether the last commit for the log was made by a release that knows owners."""
        prefix = f"{WRITER}{self.log}."
        log_writer = properties.get(WRITER + self.log)
        return any(text == log_writer for name, text in properties.items() if name.startswith(prefix))


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
            partition_before = self.get(partition)
            partitions[partition] = PartitionProgress(
                max(partition_before.next, end), max(partition_before.raw, rows.get(partition, -1))
            )
        return TableProgress(partitions)

    def within(self, offsets: Mapping[int, int]) -> bool:
        """Whether the table includes no record at or above these offsets of `enriched`."""
        return all(self.get(partition).next <= offset for partition, offset in offsets.items())

    def dump(self, topic: str = "") -> str:
        """The value of the snapshot's property; `topic`: the id of `enriched`, if it is to be part of it."""
        values: dict[str, object] = {
            str(key): list(partition_progress) for key, partition_progress in sorted(self.partitions.items())
        }
        return orjson.dumps(values | {_TOPIC: topic} if topic else values).decode()

    @classmethod
    def load(cls, text: str, topic: str = "") -> "TableProgress":
        """The progress that `dump` wrote.

        If `enriched` has been made again since then, so that its id is no longer `topic`, no record of it is decided.
        """
        values = orjson.loads(text)
        is_made_again = values.pop(_TOPIC, topic) != topic and topic != ""
        return cls(
            {
                int(key): PartitionProgress(0 if is_made_again else next_offset, raw)
                for key, (next_offset, raw) in values.items()
            }
        )


def progress_at(history: Iterable[str | None], offsets: Mapping[int, int], topic: str = "") -> TableProgress:
    """The progress that a table had when a query committed these offsets of `enriched`.

    Args:
        history: properties with the progress in the snapshots, newest first; None: a snapshot without.
        offsets: partition to the committed offset.
        topic: id of `enriched`; empty: unknown.
    """
    for text in history:
        if text is not None and (progress := TableProgress.load(text, topic)).within(offsets):
            return progress
    return TableProgress()
