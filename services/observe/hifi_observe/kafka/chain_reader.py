"""Read collect's offsets in the topics between two pipes, for the watermark of their chain.

Topics of other Kafka clusters than the stream's are not read: observe has no credentials for them.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from hifi.kafka.clients import admin_client, assigned_consumer
from hifi.kafka.late_answers import LateAnswers
from hifi.kafka.topics import Topics
from hifi.runtime.clock import monotonic_s, now_us
from hifi.runtime.trusted_clock import TrustedClock, read_clocks
from hifi_observe.settings import ObserveSettings
from hifi_observe.watermark.chain_statements import ChainStatements
from hifi_observe.watermark.chains import Chain, ChainReading, TopicEnd, servers_of

_INTERVAL_S: Final = 0.5
_IDLE_S: Final = 2.0
"""Between looks for a chain while there is none."""
_MARKERS_S: Final = 0.5
"""Longest wait for records between collect's offset and an end."""
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
        self._marker_ranges: dict[TopicPartition, tuple[int, int]] = {}
        """Partition to two offsets with nothing but markers in between, as found last."""
        self._late_answers = LateAnswers()

    async def run(self) -> None:
        """Read until cancelled, or until there is no chain any more.

        Raises:
            aiokafka.errors.KafkaError, OSError: Kafka does not answer; run it again.
        """
        while not self._pipes():
            await asyncio.sleep(_IDLE_S)
        bootstrap, client_id = self._settings.kafka, self._settings.instance
        admin = admin_client(bootstrap, client_id)
        end_consumer = assigned_consumer(bootstrap, client_id)
        marker_consumer = assigned_consumer(
            bootstrap,
            client_id,
            isolation_level="read_committed",
            auto_offset_reset="none",
            max_partition_fetch_bytes=_FETCH_BYTES,
            fetch_max_wait_ms=100,
        )
        try:
            for client in (admin, end_consumer, marker_consumer):
                await client.start()
            while pipes := self._pipes():
                for pipe in pipes:
                    await self._read_chain(pipe, admin, end_consumer, marker_consumer)
                await asyncio.sleep(_INTERVAL_S)
        finally:
            await end_consumer.stop()
            await marker_consumer.stop()
            await admin.close()

    def _pipes(self) -> list[str]:
        return [pipe for pipe in self._chains.links if self._owns(pipe)]

    async def _read_chain(self, pipe: str, admin: Any, end_consumer: Any, marker_consumer: Any) -> None:
        chain = self._chains.known_chain(pipe)
        if chain is None:
            return  # declared anew meanwhile
        problem = self._unreadable(chain.topic)
        if problem:
            chain.forget(problem)
            return
        try:
            _, upstream_us = self._chains.upstream(pipe)
            chain_reading = await self._chain_reading(
                pipe, chain, upstream_us, admin, end_consumer, marker_consumer
            )
        except KafkaError as error:
            chain.forget(f"its offsets cannot be read ({type(error).__name__})")
            return
        if chain_reading is None:
            return
        if isinstance(chain_reading, str):
            chain.forget(chain_reading)
        elif self._chains.known_chain(pipe) is chain:
            chain.take(chain_reading)

    def _unreadable(self, end: TopicEnd) -> str:
        """The reason why a topic cannot be read; empty: it can."""
        if end.servers & servers_of(self._settings.kafka):
            return ""
        return f"it is on another Kafka ({', '.join(sorted(end.servers))}), which observe does not read"

    async def _chain_reading(
        self,
        pipe: str,
        chain: Chain,
        upstream_us: int,
        admin: Any,
        end_consumer: Any,
        marker_consumer: Any,
    ) -> ChainReading | str | None:
        """The state of a topic now, or the reason why it is unknown; None: it may be that of a replaced broker."""
        topic, awaited_ends = chain.topic.topic, chain.oldest_ends
        descriptions = await admin.describe_topics([topic])
        numbers = sorted(row["partition"] for row in descriptions[0]["partitions"])
        if not numbers:
            return "it does not exist, or observe may not read it"
        tps = [TopicPartition(topic, number) for number in numbers]
        asked_us = read_clocks().monotonic_us
        end_offsets = await end_consumer.end_offsets(tps)
        if not self._late_answers.counts(asked_us, read_clocks().monotonic_us):
            return None
        first_offsets = await end_consumer.beginning_offsets(tps)
        group = await admin.list_consumer_group_offsets(self._topics.group(f"collect.{pipe}"), partitions=tps)
        read_offsets = {}
        for tp in tps:
            committed = group[tp].offset if tp in group else -1
            if committed > end_offsets[tp]:
                return f"partition {tp.partition} ends before the offset that collect has committed"
            read_offsets[tp.partition] = max(0, committed)
        committed_offsets = {
            tp.partition: group[tp].offset for tp in tps if tp in group and group[tp].offset >= 0
        }
        first_by_number = {tp.partition: offset for tp, offset in first_offsets.items()}
        if chain.note_offsets(first_by_number, committed_offsets, now_us()):
            return "records were deleted, which collect may not have read"
        for tp in tps:
            committed, end = read_offsets[tp.partition], awaited_ends.get(tp.partition, 0)
            if 0 < committed < end and self._marker_ranges.get(tp) == (committed, end):
                read_offsets[tp.partition] = end
        behind_offsets = {
            tp: read_offsets[tp.partition]
            for tp in tps
            if 0 < read_offsets[tp.partition] < awaited_ends.get(tp.partition, 0)
        }
        passed_offsets = await _ends_behind_markers(marker_consumer, behind_offsets, awaited_ends)
        self._marker_ranges |= {
            tp: (behind_offsets[tp], awaited_ends[tp.partition])
            for tp in behind_offsets
            if tp.partition in passed_offsets
        }
        read_offsets |= passed_offsets
        latest_us = self._clock.latest_us(read_clocks())
        if latest_us is None:
            return "Kafka has not confirmed the clock yet"
        return ChainReading(
            upstream_us, {tp.partition: end for tp, end in end_offsets.items()}, read_offsets, latest_us
        )


async def _ends_behind_markers(
    consumer: Any, offsets: Mapping[TopicPartition, int], awaited_ends: Mapping[int, int]
) -> dict[int, int]:
    """Partition to its end, of those with only markers of transactions between an offset and the end."""
    if not offsets:
        return {}
    consumer.assign(list(offsets))
    for tp, offset in offsets.items():
        consumer.seek(tp, offset)
    passed_offsets: dict[int, int] = {}
    remaining_tps, until_s = set(offsets), monotonic_s() + _MARKERS_S
    while remaining_tps and monotonic_s() < until_s:
        fetched = await consumer.getmany(*remaining_tps, timeout_ms=100)
        remaining_tps -= {tp for tp, records in fetched.items() if records}
        for tp in list(remaining_tps):
            position = await consumer.position(tp)
            if position >= awaited_ends[tp.partition]:
                passed_offsets[tp.partition] = position
                remaining_tps.discard(tp)
    return passed_offsets
