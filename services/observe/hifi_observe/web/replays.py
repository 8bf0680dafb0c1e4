"""Replay dead letters of a pipe at an operator's request, with a separate producer and a time limit."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Final

from aiokafka.errors import KafkaError
from pydantic import BaseModel, ConfigDict, Field

from hifi.delivery.dead_letters.letter import DeadLetter, DeadLetterFilter, parse_id
from hifi.delivery.dead_letters.reader import letters
from hifi.delivery.dead_letters.replay import CHUNK, NOTE_S, replay
from hifi.kafka.producer import Producer
from hifi.kafka.topics import Topics
from hifi.pipe.registry import PipeRegistry
from hifi.runtime import log
from hifi.runtime.clock import monotonic_s
from hifi.runtime.errors import Misconfigured, Rejected, Retryable
from hifi_observe.settings import ObserveSettings

_START_TIMEOUT_S: Final = 30
"""After this time no further chunk is started; the rest is left for another request."""
_TIMEOUT_S: Final = 60
"""Limit of a whole replay, seconds; the chunk under way still has NOTE_S."""
REPLAY_S: Final = 75.0 + NOTE_S
"""Longest time of `Replays.run`, also to disconnect, seconds."""

logger = log.get(__name__)


class ReplayRequest(BaseModel):
    """Which dead letters of a pipe to replay: all that match the filter, or those of them listed in `ids`."""

    model_config = ConfigDict(extra="forbid")

    service: str = Field("", description="Only dead letters from this service.")
    reason: str = Field("", description="Only dead letters with this reason.")
    destination: str = Field("", description="Only dead letters for this destination.")
    ids: list[str] | None = Field(
        None,
        min_length=1,
        max_length=10_000,
        description="Only these ids, `PARTITION:OFFSET`, such as `3:1042`.",
    )
    limit: int = Field(1000, ge=1, le=10_000, description="Maximum number of dead letters to replay.")


@dataclass(slots=True)
class ReplayResult:
    """Counts of dead letters after a replay."""

    replayed: int = 0
    already: int = 0
    """Skipped because they, or letters of the same work, were replayed before."""
    refused: int = 0
    """Cannot be replayed."""
    missing: int = 0
    """Requested ids that match no dead letter of this pipe and filter."""
    why: str = ""
    """The reason of the first refusal."""
    more: bool = False
    """The limit or the time limit was reached before all were replayed: repeat the request."""


class Replays:
    """Runs replays, one at a time."""

    def __init__(self, settings: ObserveSettings, topics: Topics, registry: PipeRegistry) -> None:
        self._settings = settings
        self._registry = registry
        self._topics = topics
        self.busy = False
        """A replay is running."""

    async def run(self, pipe: str, request: ReplayRequest) -> ReplayResult:
        """Replay the requested dead letters; do not call it while `busy`.

        Raises:
            Misconfigured: an id is not of the form `PARTITION:OFFSET`.
            Retryable: Kafka does not answer within 60 s; dead letters replayed before that stay replayed.
        """
        ids = {parse_id(text) for text in request.ids} if request.ids is not None else None
        letter_filter = DeadLetterFilter(
            pipe, request.destination or None, request.reason or None, service=request.service or None
        )
        totals = ReplayResult()
        self.busy = True
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await self._replay_matching(letter_filter, ids, request.limit, totals)
        except (Misconfigured, KafkaError, OSError, TimeoutError) as error:
            raise Retryable(
                f"Kafka does not answer ({error!r}); {totals.replayed} were replayed, repeating the request is harmless"
            ) from None
        finally:
            self.busy = False
            logger.info(
                "dead-letters-replayed",
                pipe=pipe,
                filter=request.model_dump(exclude={"ids", "limit"}, exclude_defaults=True),
                replayed=totals.replayed,
                refused=totals.refused,
            )
        return totals

    async def _replay_matching(
        self,
        letter_filter: DeadLetterFilter,
        ids: set[tuple[int, int]] | None,
        limit: int,
        totals: ReplayResult,
    ) -> None:
        producer = Producer(self._settings.kafka, f"{self._settings.instance}-replay")
        await producer.start()
        try:
            start_until_s, matched_count, chunk = monotonic_s() + _START_TIMEOUT_S, 0, list[DeadLetter]()
            works = set[bytes]()
            async with contextlib.aclosing(
                letters(self._settings.kafka, self._topics, letter_filter)
            ) as matching:
                async for letter in matching:
                    if ids is not None and (letter.partition, letter.offset) not in ids:
                        continue
                    matched_count += 1
                    if letter.replayed:
                        totals.already += 1
                        continue
                    if totals.replayed + len(chunk) == limit or monotonic_s() > start_until_s:
                        totals.more = True
                        break
                    chunk.append(letter)
                    if len(chunk) == CHUNK or totals.replayed + len(chunk) == limit:
                        await self._replay_chunk(producer, chunk, works, totals)
                        chunk = []
            await self._replay_chunk(producer, chunk, works, totals)
            if ids is not None and not totals.more:
                totals.missing = len(ids) - matched_count
        finally:
            await producer.stop()

    async def _replay_chunk(
        self, producer: Producer, chunk: list[DeadLetter], works: set[bytes], totals: ReplayResult
    ) -> None:
        refused_count = len(chunk)
        pipes = {revision.pipe.pipe: revision for revision in self._registry.all()}
        try:
            held_pipes = self._registry.all_held()
            async for _, topic in replay(producer, self._topics, chunk, pipes, held_pipes, works):
                refused_count -= 1
                if topic:
                    totals.replayed += 1
                else:
                    totals.already += 1
        except Rejected as error:
            totals.why = totals.why or error.detail
            totals.refused += refused_count
