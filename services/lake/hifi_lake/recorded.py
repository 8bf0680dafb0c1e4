"""Deliveries that have a receipt, as far as the topic `receipts` has been read. Pure."""

import zlib
from array import array
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from hifi.record.fields import fields
from hifi.record.headers import DESTINATION, SOURCE
from hifi.record.identity import identity
from hifi.record.receipt import parse_source
from hifi.runtime.errors import NotAnEvent

TableName: TypeAlias = tuple[str, str]
"""Pipe and destination."""
_SOURCE_TOPIC: Final = b"enriched"


class RecordedPartition(NamedTuple):
    """Deliveries of a table in one partition."""

    offsets: "array[int]"
    """In `enriched`."""
    checks: "array[int]"
    """CRC-32 of the identity of the event at each offset: if `enriched` is made again, another event has the offset."""


class RecordedDeliveries:
    """Deliveries of tables from given offsets of `enriched` on that have a receipt, 12 bytes for each.

    It is kept from run to run of the query, so that no receipt is read twice, also after a reading that failed.

    Attributes:
        read_count: records that have been read so far.
    """

    def __init__(self) -> None:
        self.read_count: int = 0
        self._names: frozenset[TableName] = frozenset()
        self._start: Mapping[int, int] = {}
        self._next_receipts: dict[int, int] = {}
        self._deliveries: dict[TableName, dict[int, RecordedPartition]] = {}

    def want(self, table_names: Collection[TableName], start: Mapping[int, int]) -> None:
        """State which deliveries count; everything has to be read again if others than before do.

        Args:
            table_names: of all tables.
            start: partition to the offset in `enriched` before which deliveries are of no interest.
        """
        is_within = all(start.get(partition, 0) >= offset for partition, offset in self._start.items())
        if not (self._names.issuperset(table_names) and is_within):
            self._next_receipts.clear()
            self._deliveries.clear()
        self._names = self._names.union(table_names)
        self.forget_before(start)

    def forget_before(self, start: Mapping[int, int]) -> None:
        """Forget the deliveries before these offsets of `enriched`, by partition."""
        self._start = dict(start)
        for by_partition in self._deliveries.values():
            for partition, (offsets, checks) in by_partition.items():
                first_offset = start.get(partition, 0)
                by_partition[partition] = RecordedPartition(
                    array("q", (offset for offset in offsets if offset >= first_offset)),
                    array(
                        "I",
                        (
                            check
                            for offset, check in zip(offsets, checks, strict=True)
                            if offset >= first_offset
                        ),
                    ),
                )

    def unread(self, existing: Mapping[int, range], floors: Mapping[int, int]) -> dict[int, range]:
        """The offsets of `receipts` that are still to be read, by partition.

        Args:
            existing: that Kafka has now, by partition.
            floors: partition to the offset from which on to read; default: all.
        """
        unread_offsets = {}
        for partition, offsets in existing.items():
            next_offset = self._next_receipts.get(partition, 0)
            if next_offset > offsets.stop:  # the topic was made anew
                next_offset = 0
            first_offset = max(offsets.start, floors.get(partition, 0), next_offset)
            unread_offsets[partition] = range(first_offset, max(first_offset, offsets.stop))
        return unread_offsets

    def add(self, records: Iterable[Any]) -> list[tuple[Any, str]]:
        """Take the next records of partitions of `receipts`.

        Returns:
            The records that cannot be read, which are skipped, and why.
        """
        unreadable_records = []
        for record in records:
            partition = record.partition
            self.read_count += 1
            self._next_receipts[partition] = record.offset + 1
            try:
                delivery = _delivery(record)
            except ValueError as error:
                unreadable_records.append((record, repr(error)))
                continue
            if delivery is None:
                continue
            name, offset, check = delivery
            if name in self._names and offset >= self._start.get(partition, 0):
                empty = RecordedPartition(array("q"), array("I"))
                recorded = self._deliveries.setdefault(name, {}).setdefault(partition, empty)
                recorded.offsets.append(offset)
                recorded.checks.append(check)
        return unreadable_records

    def of_table(self, name: TableName) -> dict[int, RecordedPartition]:
        """Partition to the deliveries of a table that have a receipt."""
        deliveries = self._deliveries.get(name, {})
        return {partition: recorded for partition, recorded in deliveries.items() if recorded.offsets}

    def __bool__(self) -> bool:
        """Whether there is any such delivery."""
        return any(self.of_table(name) for name in self._deliveries)


def _delivery(record: Any) -> tuple[TableName, int, int] | None:
    """Table, offset in `enriched` and check of a receipt; None: it is for no delivery of a record of `enriched`."""
    try:
        event = identity(record.headers)
    except NotAnEvent:
        return None
    header_fields = fields(record.headers)
    source = parse_source(header_fields.get(SOURCE, b""))
    if source is None or source[0] != _SOURCE_TOPIC:
        return None
    name = event.pipe, header_fields.get(DESTINATION, b"").decode()
    return name, source[1], zlib.crc32(event.seq)
