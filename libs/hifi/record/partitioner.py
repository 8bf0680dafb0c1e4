"""Partition of a key, as Kafka's default partitioner chooses it. Pure."""

from struct import Struct
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mypy_extensions import i64  # a machine word where this is compiled; no product below exceeds 63 bits

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF
_UNPACK: Final = [Struct(f"<{words}I").unpack for words in range(64)]
"""Number of words to what unpacks them."""


def murmur2(data: bytes) -> int:
    """32-bit MurmurHash2 with Kafka's seed (org.apache.kafka.common.utils.Utils.murmur2), unsigned.

    Works on whole words, which takes half the time of aiokafka's implementation (one byte at a time).
    """
    length = len(data)
    whole_words = length & ~3
    h: i64 = _SEED ^ length
    k: i64
    words = length >> 2
    unpack = _UNPACK[words] if words < len(_UNPACK) else Struct(f"<{words}I").unpack
    for word in unpack(data[:whole_words]):
        k = word
        k = k * _M & _MASK
        h = (h * _M ^ (k ^ k >> 24) * _M) & _MASK
    if length & 3:
        k = int.from_bytes(data[whole_words:], "little")
        h = (h ^ k) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    return h ^ h >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a key, from 0.

    Args:
        key: of the record.
        partitions: of the topic.
    """
    return (murmur2(key) & 0x7FFFFFFF) % partitions
