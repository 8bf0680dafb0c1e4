"""Events with an id, a position and CloudEvents attributes, written to a topic in batches by hand with aiokafka."""

import asyncio
import secrets
import time
import zlib
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from aiokafka import AIOKafkaProducer

ATTRIBUTES = [
    ("ce_specversion", b"1.0"),
    ("ce_source", b"/bench"),
    ("content-type", b"application/json"),
    ("ce_type", b"made"),
]


class Envelopes:
    """Builds the batches of all partitions, and sends those that are full."""

    def __init__(self, producer: AIOKafkaProducer, topic: str, partitions: int) -> None:
        """Write to a topic with this number of partitions."""
        self._producer, self._topic, self._partitions = producer, topic, partitions
        self._run_id = secrets.token_hex(8).encode()
        self._next = [0] * partitions
        self._batches: dict[int, Any] = {}
        self._full_batches: list[tuple[int, Any]] = []
        self._futures: list[Any] = []
        self._begin()

    def _begin(self) -> None:
        now_us = time.time_ns() // 1000
        self._identity = b"2;orders;1;1;%d;%d;%b" % (now_us, now_us // 60_000_000, self._run_id)
        self._hop = ("hifi_hop", b"%d" % now_us)

    def add(self, key: bytes, data: bytes, location: bytes, position: int, time: bytes) -> bool:
        """Add an event of a source partition; True: a batch is full, so call `send_full`."""
        partition = zlib.crc32(key) % self._partitions
        headers = [
            ("hifi", b"%b:%d" % (self._identity, self._next[partition])),
            self._hop,
            ("hifi_position", b"%b;%d;%b" % (self._run_id, position, location)),
            *ATTRIBUTES,
            ("ce_id", b"%b/%d" % (location, position)),
            ("ce_time", time),
        ]
        self._next[partition] += 1
        batch = self._batches.get(partition)
        if batch is None:
            batch = self._batches[partition] = self._producer.create_batch()
        if batch.append(timestamp=None, key=key, value=data, headers=headers) is not None:
            return False
        self._full_batches.append((partition, batch))
        batch = self._batches[partition] = self._producer.create_batch()
        batch.append(timestamp=None, key=key, value=data, headers=headers)
        return True

    async def send_full(self) -> None:
        """Send the batches that are full."""
        full_batches, self._full_batches = self._full_batches, []
        for partition, batch in full_batches:
            self._futures.append(await self._producer.send_batch(batch, self._topic, partition=partition))

    async def written(self) -> bool:
        """Send the remaining batches, and return once Kafka has acknowledged all; False: there were none."""
        self._full_batches += self._batches.items()
        await self.send_full()
        futures, self._futures, self._batches = self._futures, [], {}
        await asyncio.gather(*futures)
        self._begin()
        return bool(futures)


def rfc3339(time_ms: int) -> bytes:
    """A time in milliseconds since 1970 UTC as text."""
    second, rest_ms = divmod(time_ms, 1000)
    return b"%b.%03dZ" % (second_text(second), rest_ms)


@lru_cache
def second_text(second: int) -> bytes:
    """Date and time of a second."""
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()
