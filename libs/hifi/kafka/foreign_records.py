"""Fetched records of producers that are not hifi's: one that cannot be read takes no other with it.

aiokafka raises at the first record that it cannot read, and unpacks a batch however large it becomes. Here a record or
batch that will never be readable is an `UnreadRecord` in its place. A batch with a wrong checksum may be readable
from another replica: it is `CorruptBatch`, after the records in front of it.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from aiokafka import ConsumerRecord, TopicPartition
from aiokafka.consumer.fetcher import READ_COMMITTED, PartitionRecords
from aiokafka.errors import CorruptRecordException
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.legacy_records import LegacyRecordBatch
from aiokafka.record.util import decode_varint

from hifi.kafka.unpacking import NotUnpacked, UnpacksTooFar, unpack

_PREFIX: Final = struct.Struct(">qi")
"""Offset and length of a batch."""
_HEAD: Final = struct.Struct(">qiibIhiqqqhii")
"""Of a batch of version 2: offset, length, epoch, magic, CRC, attributes, last offset delta, times, producer, count."""
_MAGIC_AT: Final = 16
_LEGACY_ATTRIBUTES_AT: Final = 17
_LEGACY_KEY_AT: Final = {0: 18, 1: 26}
_LEAST_BYTES: Final = 26
_ATTRIBUTES, _LAST_DELTA, _MAX_TIMESTAMP, _COUNT = 5, 6, 8, 12
_CODEC_MASK: Final = 0x07
_DEFAULT_MAGIC: Final = 2


@dataclass
class UnreadRecord(ConsumerRecord):  # type: ignore[misc]
    """Stands for a record, or for the rest of a batch, that cannot be read: key and value are None."""

    reason: str = ""
    """Short stable code."""
    detail: str = ""
    """One sentence with the offsets."""


class CorruptBatch(CorruptRecordException):  # type: ignore[misc]
    """The checksum of the next batch of a partition is wrong, or the batch is no batch."""

    def __init__(self, tp: TopicPartition, offset: int, reason: str) -> None:
        super().__init__(f"{tp.topic}[{tp.partition}]: the batch at offset {offset} {reason}")
        self.offset = offset
        """Of the first record that cannot be read."""
        self.reason = reason


class FetchedBatches:
    """The batches of a fetch as bytes. Replaces aiokafka's MemoryRecords, which unpacks without a bound."""

    def __init__(self, fetched: bytes, *, max_bytes: int) -> None:
        """Read nothing yet.

        Args:
            fetched: whole batches; the last one may be cut off.
            max_bytes: what a batch may unpack to.
        """
        self._fetched = fetched
        self._position = 0
        self.max_bytes = max_bytes

    def size_in_bytes(self) -> int:
        """Size of all that was fetched."""
        return len(self._fetched)

    def has_next(self) -> bool:
        """Whether another whole batch follows."""
        return self._end() is not None

    def next_batch(self) -> bytes:
        """The next batch, with offset and length."""
        begin, end = self._position, self._end()
        assert end is not None
        self._position = end
        return self._fetched[begin:end]

    def _end(self) -> int | None:
        if len(self._fetched) - self._position < _PREFIX.size:
            return None
        length = max(_PREFIX.unpack_from(self._fetched, self._position)[1], 0)
        end = self._position + _PREFIX.size + length
        return end if end <= len(self._fetched) else None


class ForeignRecords(PartitionRecords):  # type: ignore[misc]
    """The records of one partition of a fetch; its iterator raises CorruptBatch and nothing else."""

    next_fetch_offset: int

    def _unpack_records(self) -> Iterator[ConsumerRecord]:
        yield from self._unpack_with_care(self.next_fetch_offset)

    def _unpack_with_care(self, first_offset: int) -> Iterator[ConsumerRecord]:
        """The records from `next_fetch_offset` on of a fetch that began at an offset."""
        while self._records.has_next():
            try:
                yield from self._batch_records(self._records.next_batch())
            except CorruptBatch:
                if self.next_fetch_offset == first_offset:
                    raise
                return  # what is in front of it is taken first; then it is fetched again

    def _batch_records(self, data: bytes) -> Iterator[ConsumerRecord]:
        """The records of a batch from `next_fetch_offset` on, which moves behind the batch."""
        if len(data) < _LEAST_BYTES:
            raise CorruptBatch(self._tp, self.next_fetch_offset, f"has {len(data)} bytes only")
        magic = data[_MAGIC_AT]
        if magic < _DEFAULT_MAGIC:
            yield from self._legacy_records(data, magic)
            return
        if len(data) < _HEAD.size:
            raise CorruptBatch(self._tp, self.next_fetch_offset, f"has {len(data)} bytes only")
        batch = DefaultRecordBatch(data)
        if not batch.validate_crc():
            raise CorruptBatch(self._tp, self.next_fetch_offset, "has a wrong checksum")
        if not self._is_skipped(batch):
            head = list(_HEAD.unpack_from(data))
            codec, body = head[_ATTRIBUTES] & _CODEC_MASK, data[_HEAD.size :]
            try:
                if codec:
                    body = bytes(unpack(codec, body, self._records.max_bytes))
            except NotUnpacked as error:
                yield self._unreadable_rest(head, error)
                return
            head[_ATTRIBUTES] &= ~_CODEC_MASK
            batch = DefaultRecordBatch(_HEAD.pack(*head) + body) if codec else batch
            for record in _parsed_records(batch, head, body):
                yield from self._checked_record(record, head)
        self.next_fetch_offset = max(self.next_fetch_offset, batch.next_offset)

    def _is_skipped(self, batch: Any) -> bool:
        """Whether a batch has no records to read: those of an aborted transaction, or a marker."""
        if self._isolation_level == READ_COMMITTED and batch.producer_id is not None:
            self._consume_aborted_up_to(batch.base_offset)
            if batch.is_control_batch and self._contains_abort_marker(batch):
                self._aborted_producers.discard(batch.producer_id)
            if batch.is_transactional and batch.producer_id in self._aborted_producers:
                return True
        return bool(batch.is_control_batch)

    def _checked_record(self, record: "Any | UnparsedRecord", head: list[int]) -> Iterator[ConsumerRecord]:
        if isinstance(record, UnparsedRecord):
            last_offset = head[0] + head[_LAST_DELTA]
            if record.is_rest:
                yield self._unreadable_rest(head, record.error)
                return
            expected_offset = self.next_fetch_offset
            offset = (
                expected_offset if record.offset is None or record.offset > last_offset else record.offset
            )
            if offset >= expected_offset:
                self.next_fetch_offset = offset + 1
                yield self._unparsed_record(offset, head[_MAX_TIMESTAMP], record)
        elif record.offset >= self.next_fetch_offset:  # a fetch begins with the whole batch of its offset
            self.next_fetch_offset = record.offset + 1
            yield self._consumer_record(self._tp, record)

    def _legacy_records(self, data: bytes, magic: int) -> Iterator[ConsumerRecord]:
        """The records of a message of version 0 or 1, which may be a compressed set of them."""
        offset: int = _PREFIX.unpack_from(data)[0]
        try:
            batch = LegacyRecordBatch(data, magic)
            if not batch.validate_crc():
                raise CorruptBatch(self._tp, self.next_fetch_offset, "has a wrong checksum")
            _check_legacy(data, magic, self._records.max_bytes)
            records = list(batch)
        except CorruptBatch:
            raise
        except Exception as error:  # noqa: BLE001 - whatever hostile bytes cause
            if offset >= self.next_fetch_offset:
                self.next_fetch_offset = offset + 1
                detail = f"the message at offset {offset} of {self._partition_name} {_problem(error)}"
                yield self._unreadable(offset, 0, _reason(error), detail)
            return
        for record in records:
            if record.offset >= self.next_fetch_offset:
                self.next_fetch_offset = record.offset + 1
                yield self._consumer_record(self._tp, record)
        self.next_fetch_offset = max(self.next_fetch_offset, batch.next_offset)

    def _unreadable_rest(self, head: list[int], error: Exception) -> UnreadRecord:
        """Stands for all records of a batch from `next_fetch_offset` on; its offset is that of the last one.

        So each reader of the batch gives the same offset.
        """
        base_offset, last_offset = head[0], head[0] + head[_LAST_DELTA]
        offsets_text = f"the offsets {base_offset} to {last_offset}"
        detail = f"the batch with {offsets_text} of {self._partition_name} {_problem(error)}"
        first_offset = max(base_offset, self.next_fetch_offset)
        if first_offset > base_offset:
            detail += f"; {first_offset} to {last_offset} are left out"
        last_offset = max(last_offset, self.next_fetch_offset)
        self.next_fetch_offset = last_offset + 1
        return self._unreadable(last_offset, head[_MAX_TIMESTAMP], _reason(error), detail)

    @property
    def _partition_name(self) -> str:
        return f"{self._tp.topic}[{self._tp.partition}]"

    def _unparsed_record(self, offset: int, timestamp: int, unparsed: "UnparsedRecord") -> UnreadRecord:
        """Stands for a record alone."""
        detail = f"the record at offset {offset} of {self._partition_name} {_problem(unparsed.error)}"
        return self._unreadable(offset, timestamp, "unreadable-record", detail)

    def _unreadable(self, offset: int, timestamp: int, reason: str, detail: str) -> UnreadRecord:
        topic, partition = self._tp
        return UnreadRecord(
            topic, partition, offset, timestamp, 0, None, None, None, -1, -1, (), reason, detail
        )


@dataclass(frozen=True, slots=True)
class UnparsedRecord:
    """A record of a batch that cannot be read; `is_rest`: nor can those that follow."""

    offset: int | None
    error: Exception
    is_rest: bool = False
    alone: bytes = b""
    """An uncompressed batch with nothing but the record; empty with `is_rest`."""


def _parsed_records(batch: Any, head: list[int], body: bytes) -> "Iterator[Any | UnparsedRecord]":
    """The records of an uncompressed batch, parsed together until one fails; from there on each alone."""
    records, count = iter(batch), 0
    while True:
        try:
            record = next(records)
        except StopIteration:
            return
        except Exception:  # noqa: BLE001 - whatever hostile bytes cause
            break
        count += 1
        yield record
    yield from _records_parsed_alone(head, body, count)


def _records_parsed_alone(head: list[int], body: bytes, count: int) -> "Iterator[Any | UnparsedRecord]":
    """The records of an uncompressed batch after the first `count`."""
    single_head = _HEAD.pack(*head[:_COUNT], 1)
    buffer, position = bytearray(body), 0
    for number in range(head[_COUNT]):
        try:
            length, begin = decode_varint(buffer, position)
            if length <= 0 or begin + length > len(buffer):
                raise ValueError(f"it has a record of {length} bytes")
        except (ValueError, IndexError) as error:
            yield UnparsedRecord(None, error, is_rest=True)
            return
        end = begin + length
        if number >= count:
            alone = single_head + body[position:end]
            try:
                [record] = DefaultRecordBatch(alone)
                yield record
            except Exception as error:  # noqa: BLE001 - whatever hostile bytes cause
                yield UnparsedRecord(_offset(head, buffer, begin), error, alone=alone)
        position = end


def _offset(head: list[int], buffer: bytearray, begin: int) -> int | None:
    """The offset of a record; None: it cannot be read either.

    Args:
        head: of the batch.
        buffer: records of the batch.
        begin: place of the record behind its length.
    """
    try:
        _, position = decode_varint(buffer, begin + 1)
        delta: int = decode_varint(buffer, position)[0]
    except (ValueError, IndexError):
        return None
    return head[0] + delta


def with_ascii_names(batch: bytes) -> bytes:
    """An uncompressed batch of one record with `?` for each byte that is not ASCII in header names that are not UTF-8.

    Raises:
        ValueError, IndexError: the record is malformed.
    """
    buffer = bytearray(batch)
    _, position = decode_varint(buffer, _HEAD.size)  # length
    position += 1  # attributes
    for _ in ("time", "offset"):
        _, position = decode_varint(buffer, position)
    for _ in ("key", "value"):
        length, position = decode_varint(buffer, position)
        position += max(length, 0)
    count, position = decode_varint(buffer, position)
    for _ in range(count):
        length, position = decode_varint(buffer, position)
        if length < 0:
            raise ValueError(f"the name of a header has {length} bytes")
        name = buffer[position : position + length]
        try:
            name.decode()
        except UnicodeDecodeError:
            buffer[position : position + length] = name.decode("ascii", "replace").encode("ascii", "replace")
        length, position = decode_varint(buffer, position + length)
        position += max(length, 0)
    return bytes(buffer)


def _check_legacy(data: bytes, magic: int, max_bytes: int) -> None:
    """Check what a message of version 0 or 1 unpacks to.

    Raises:
        UnpacksTooFar: to more than that.
    """
    codec = data[_LEGACY_ATTRIBUTES_AT] & _CODEC_MASK
    if codec:
        position = _LEGACY_KEY_AT[magic]
        position += 4 + max(struct.unpack_from(">i", data, position)[0], 0)
        try:
            unpack(codec, data[position + 4 :], max_bytes)
        except UnpacksTooFar:
            raise
        except NotUnpacked:
            pass  # aiokafka knows the variants of these versions


def _reason(error: Exception) -> str:
    return "too-large" if isinstance(error, UnpacksTooFar) else "unreadable-record"


def _problem(error: Exception) -> str:
    if isinstance(error, NotUnpacked):
        return str(error)
    if isinstance(error, UnicodeDecodeError) or isinstance(error.__cause__, UnicodeDecodeError):
        return "has a header whose name is not UTF-8"
    return f"is malformed ({type(error).__name__})"
