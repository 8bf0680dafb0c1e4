"""Read how far collect is in the topics between two pipes, for the watermark of their chain.

Topics of other Kafka clusters than the stream's are not read: observe has no credentials for them.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from hifi.kafka.clients import admin_client, assigned_consumer
from hifi.kafka.topics import Topics
from hifi.runtime.clock import monotonic_s, now_us
from hifi_observe.settings import ObserveSettings
from hifi_observe.watermark.chain_statements import ChainStatements
from hifi_observe.watermark.chains import Chain, Reading, TopicEnd, servers_of
from hifi_observe.watermark.trusted_clock import TrustedClock, read_clocks

_INTERVAL_S: Final = 0.5
_IDLE_S: Final = 2.0
"""Between looks for a chain while there is none."""
_MARKERS_S: Final = 0.5
"""Longest wait for what stands between collect's offset and an end."""
_FETCH_BYTES: Final = 16 * 1024


class ChainReader:
    """Reads the topics of the chains that this instance states; without a chain it has no connection.

    Args:
        settings: of the service.
        topics: of the stream.
        chains: gets what was read.
        owns: whether this instance states the watermarks of a pipe.
        clock: of watermarks.
    """

    def __init__(
        self,
        settings: ObserveSettings,
        topics: Topics,
        chains: ChainStatements,
        owns: Callable[[str], bool],
        clock: TrustedClock,
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._chains = chains
        self._owns = owns
        self._clock = clock
        self._markers: dict[TopicPartition, tuple[int, int]] = {}
        """Partition to two offsets with nothing but markers in between, as found last."""

    async def run(self) -> None:
        """Read until cancelled, or until there is no chain any more.

        Raises:
            aiokafka.errors.KafkaError, OSError: Kafka does not answer; run it again.
        """
        while not self._pipes():
            await asyncio.sleep(_IDLE_S)
        bootstrap = self._settings.kafka
        admin = admin_client(bootstrap)
        ends = assigned_consumer(bootstrap)
        markers = assigned_consumer(
            bootstrap,
            isolation_level="read_committed",
            auto_offset_reset="none",
            max_partition_fetch_bytes=_FETCH_BYTES,
            fetch_max_wait_ms=100,
        )
        try:
            for client in (admin, ends, markers):
                await client.start()
            while pipes := self._pipes():
                for pipe in pipes:
                    await self._read(pipe, admin, ends, markers)
                await asyncio.sleep(_INTERVAL_S)
        finally:
            await ends.stop()
            await markers.stop()
            await admin.close()

    def _pipes(self) -> list[str]:
        return [pipe for pipe in self._chains.links if self._owns(pipe)]

    async def _read(self, pipe: str, admin: Any, ends: Any, markers: Any) -> None:
        chain = self._chains.chain(pipe)
        problem = self._elsewhere(chain.topic)
        if problem:
            chain.forget(problem)
            return
        try:
            _, upstream_us = self._chains.upstream(pipe)
            reading = await self._reading(pipe, chain, upstream_us, admin, ends, markers)
        except KafkaError as error:
            chain.forget(f"its offsets cannot be read ({type(error).__name__})")
            return
        if isinstance(reading, str):
            chain.forget(reading)
        elif self._chains.chain(pipe) is chain:
            chain.take(reading)

    def _elsewhere(self, end: TopicEnd) -> str:
        """Why a topic cannot be read; empty: it can."""
        if end.servers & servers_of(self._settings.kafka):
            return ""
        return f"it is on another Kafka ({', '.join(sorted(end.servers))}), which observe does not read"

    async def _reading(
        self,
        pipe: str,
        chain: Chain,
        upstream_us: int,
        admin: Any,
        ends: Any,
        markers: Any,
    ) -> Reading | str:
        """What there is to know of a topic now, or why that is nothing."""
        topic, waits_for = chain.topic.topic, chain.oldest_ends
        described = await admin.describe_topics([topic])
        numbers = sorted(row["partition"] for row in described[0]["partitions"])
        if not numbers:
            return "it does not exist, or observe may not read it"
        tps = [TopicPartition(topic, number) for number in numbers]
        end_offsets = await ends.end_offsets(tps)
        first_offsets = await ends.beginning_offsets(tps)
        group = await admin.list_consumer_group_offsets(self._topics.group(f"collect.{pipe}"), partitions=tps)
        read = {}
        for tp in tps:
            committed = group[tp].offset if tp in group else -1
            if committed > end_offsets[tp]:
                return f"partition {tp.partition} ends before the offset that collect has committed"
            read[tp.partition] = max(0, committed)
        has_committed = {
            tp.partition: group[tp].offset for tp in tps if tp in group and group[tp].offset >= 0
        }
        first = {tp.partition: offset for tp, offset in first_offsets.items()}
        if chain.note_offsets(first, has_committed, now_us()):
            return "records were deleted, which collect may not have read"
        for tp in tps:
            committed, end = read[tp.partition], waits_for.get(tp.partition, 0)
            if 0 < committed < end and self._markers.get(tp) == (committed, end):
                read[tp.partition] = end
        behind = {
            tp: read[tp.partition] for tp in tps if 0 < read[tp.partition] < waits_for.get(tp.partition, 0)
        }
        passed = await _behind_markers(markers, behind, waits_for)
        self._markers |= {
            tp: (behind[tp], waits_for[tp.partition]) for tp in behind if tp.partition in passed
        }
        read |= passed
        latest_us = self._clock.latest_us(read_clocks())
        if latest_us is None:
            return "Kafka has not confirmed the clock yet"
        return Reading(upstream_us, {tp.partition: end for tp, end in end_offsets.items()}, read, latest_us)


async def _behind_markers(
    consumer: Any, offsets: Mapping[TopicPartition, int], ends: Mapping[int, int]
) -> dict[int, int]:
    """Partition to its end, of those with only markers of transactions between an offset and the end."""
    if not offsets:
        return {}
    consumer.assign(list(offsets))
    for tp, offset in offsets.items():
        consumer.seek(tp, offset)
    passed: dict[int, int] = {}
    left, until_s = set(offsets), monotonic_s() + _MARKERS_S
    while left and monotonic_s() < until_s:
        fetched = await consumer.getmany(*left, timeout_ms=100)
        left -= {tp for tp, records in fetched.items() if records}
        for tp in list(left):
            position = await consumer.position(tp)
            if position >= ends[tp.partition]:
                passed[tp.partition] = position
                left.discard(tp)
    return passed
