"""Kafka batches that aiokafka does not make, as other producers do."""

import struct
from collections.abc import Callable, Sequence

from aiokafka import AIOKafkaProducer
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.util import calc_crc32c

_ATTRIBUTES_AT = 21
_CRC_AT = 17
_LENGTH_AT = 8
_HEAD_BYTES = 61


def batch_of(
    values: Sequence[bytes],
    *,
    header: str | None = None,
    codec: int = 0,
    change: Callable[[bytes], bytes] = bytes,
) -> bytes:
    """A batch with a right checksum.

    Args:
        values: of its records.
        header: name of a header of each record, with the value `x`; None: there is none.
        codec: of the compression.
        change: what is done to the bytes of the records, such as to compress them.
    """
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, 0, 2**30)
    for number, value in enumerate(values):
        headers = [] if header is None else [(header, b"x")]
        assert builder.append(number, 1_790_000_000_000, None, value, headers) is not None
    built = bytes(builder.build())
    batch = bytearray(built[:_HEAD_BYTES] + change(built[_HEAD_BYTES:]))
    struct.pack_into(">i", batch, _LENGTH_AT, len(batch) - _LENGTH_AT - 4)
    struct.pack_into(">h", batch, _ATTRIBUTES_AT, codec)
    struct.pack_into(">I", batch, _CRC_AT, calc_crc32c(bytes(batch[_ATTRIBUTES_AT:])))
    return bytes(batch)


async def send_batch(producer: AIOKafkaProducer, topic: str, batch: bytes, partition: int = 0) -> int:
    """Append a batch; the offset of its first record."""
    builder = producer.create_batch()
    builder.append(timestamp=None, key=None, value=b"", headers=[])
    builder._buffer, builder._relative_offset = batch, struct.unpack_from(">i", batch, _HEAD_BYTES - 4)[0]
    builder.close()
    future = await producer.send_batch(builder, topic, partition=partition)
    offset: int = (await future).offset
    return offset
