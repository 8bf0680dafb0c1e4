"""Which partition a key goes to: as Kafka's own default partitioner does it. Pure."""

from functools import lru_cache
from struct import unpack
from typing import Final

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_SHORT_BYTES: Final = 128


def murmur2(data: bytes) -> int:
    """32-bit MurmurHash2 with Kafka's seed (org.apache.kafka.common.utils.Utils.murmur2), unsigned.

    aiokafka has it too, one byte at a time; whole words take half the time.
    """
    length = len(data)
    whole = length & ~3
    h = _SEED ^ length
    for word in unpack("<%dI" % (length >> 2), data[:whole]):  # noqa: UP031 - the fastest way to say it
        k = word * _M & _MASK
        h = (h * _M ^ (k ^ k >> 24) * _M) & _MASK
    if length & 3:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


@lru_cache(maxsize=16_384)
def _short(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def partition(key: bytes, partitions: int) -> int:
    """The partition, from 0, of a key among so many."""
    if len(key) <= _SHORT_BYTES:
        return _short(key, partitions)
    return (murmur2(key) & 0x7FFFFFFF) % partitions
