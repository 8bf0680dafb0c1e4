"""Asking Kafka for records as seldom as nobody notices."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from types import FunctionType
from typing import Any, Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.subscription_state import Assignment

from hifi.kafka.fetch_interval import FETCH_INTERVAL


class AdaptiveConsumer(AIOKafkaConsumer):  # type: ignore[misc]
    """An AIOKafkaConsumer whose `fetch_max_wait_ms` means what AdaptiveFetcher says."""

    async def start(self) -> None:
        """Connect."""
        await start_with({"Fetcher": AdaptiveFetcher})(self)


class AdaptiveFetcher(Fetcher):  # type: ignore[misc]
    """A Fetcher that asks Kafka as seldom as nobody notices: requests cost, records hardly do.

    A lone record comes at once. Where records just came, more will: then the next fetch is sent after the time of
    `hifi.kafka.fetch_interval`, or `fetch_max_wait_ms` where that is longer, and takes all that came meanwhile; at once where
    more was there than the last one could take. The time is waited for here: a fetch that waits for many bytes at the
    broker is looked at again, with all its partitions, for each batch that is appended to any of them. Where none came,
    asking again and again would be all that an idle mesh does; but a broker answers one fetch at a time, and a
    partition whose records are still being worked on is not in it, so while there is one the fetch must end soon.
    """

    IDLE_WAIT_MS: Final = 200

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._least_wait_ms: int = options["fetch_max_wait_ms"]
        self._flows = False

    def _get_actions_per_node(self, assignment: Assignment) -> Any:
        idle_ms = max(self.IDLE_WAIT_MS, self._least_wait_ms)
        self._fetch_max_wait_ms = round(self._brief_s * 1000) if self._records else idle_ms
        return super()._get_actions_per_node(assignment)

    async def _proc_fetch_request(self, assignment: Assignment, node_id: int, request: Any) -> Any:
        if self._flows and not _more_is_there(assignment, request):
            try:
                await asyncio.sleep(self._brief_s)
            except asyncio.CancelledError:
                return False  # as the method below does
        self._flows = await super()._proc_fetch_request(assignment, node_id, request)
        return self._flows

    @property
    def _brief_s(self) -> float:
        return max(FETCH_INTERVAL.seconds, self._least_wait_ms / 1000)


def _more_is_there(assignment: Assignment, request: Any) -> bool:
    """A partition had more records at the last fetch than that one took."""
    return any(
        (assignment.state_value(TopicPartition(topic, partition)).highwater or 0) > offset
        for topic, partitions in request.topics
        for partition, offset, _ in partitions
    )


def start_with(parts: Mapping[str, Callable[..., Any]]) -> Callable[[Any], Awaitable[None]]:
    """AIOKafkaConsumer's `start`, in which the names of some classes mean these; the original stays as it is.

    `start` names the classes and offers no way in. The names could be changed in its module for a while, but
    that would be for every consumer that happens to start then.
    """
    start: Any = AIOKafkaConsumer.start
    return FunctionType(start.__code__, {**start.__globals__, **parts})
