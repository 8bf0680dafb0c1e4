"""Detect a consumer that makes no progress although there are records: aiokafka's issues 625, 703, 718 and 847."""

import asyncio
from collections.abc import Iterable
from typing import Any, Final

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from hifi.kafka.assigned_partition import AssignedPartition
from hifi.kafka.clients import topic_consumer
from hifi.kafka.security import KafkaSecurity
from hifi.runtime import log

_ANSWER_S: Final = 20
"""Bound on a client's answer, seconds; above the 15 s after which a request of the consumer times out."""
_SILENT_CHECKS: Final = 2
"""A client that does not answer this many checks in a row, while another client gets an answer, is stuck."""

logger = log.get(__name__)


class ProgressWatchdog:
    """Compares, at each check, the positions of one member with the ends of its partitions."""

    def __init__(
        self,
        bootstrap: str,
        client_id: str,
        group: str,
        security: KafkaSecurity | None = None,
        pipe: str | None = None,
    ) -> None:
        self._bootstrap, self._client_id = bootstrap, client_id
        self._security, self._pipe = security, pipe
        self._group = group
        self._positions: dict[TopicPartition, int] = {}
        self._silent_checks = 0

    async def stuck(self, member: Any, assigned: Iterable[AssignedPartition]) -> list[TopicPartition]:
        """The partitions without progress since the last check; empty while Kafka answers no client.

        A partition is stuck if no handler runs, all earlier records are complete, the next batch is not corrupt, and
        the position, which is the same as at the last check, is below the partition's end.

        Args:
            member: the CooperativeConsumer.
            assigned: the partitions assigned to it.
        """
        idle = [
            partition.tp
            for partition in assigned
            if partition.idle and not partition.offsets.pending and not partition.corrupt
        ]
        if not idle:
            self._positions = {}
            return []
        try:
            async with asyncio.timeout(_ANSWER_S):
                end_offsets = await member.end_offsets(idle)
                positions = {tp: await member.position(tp) for tp in idle}
        except (KafkaError, OSError, TimeoutError) as error:
            return await self._silent(idle, error)
        self._silent_checks = 0
        positions_before, self._positions = self._positions, positions
        return [
            tp for tp in idle if positions[tp] < end_offsets[tp] and positions_before.get(tp) == positions[tp]
        ]

    async def _silent(self, idle: list[TopicPartition], error: Exception) -> list[TopicPartition]:
        """The member got no answer. If a new client gets one, Kafka is there and the member is stuck."""
        logger.warning("kafka-unreachable", group=self._group, error=repr(error))
        self._silent_checks = self._silent_checks + 1 if await self._kafka_answers(idle) else 0
        return idle if self._silent_checks >= _SILENT_CHECKS else []

    async def _kafka_answers(self, tps: list[TopicPartition]) -> bool:
        try:
            async with (
                asyncio.timeout(_ANSWER_S),
                topic_consumer(
                    self._bootstrap, self._client_id, security=self._security, pipe=self._pipe
                ) as client,
            ):
                await client.end_offsets(tps)
        except (KafkaError, OSError, TimeoutError):
            return False
        return True
