"""Dead letters of a pipe let go again on an operator's word, through a producer of its own; bounded."""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Final

from aiokafka.errors import KafkaError
from pydantic import BaseModel, ConfigDict, Field

from hifi import log
from hifi.clock import monotonic_s
from hifi.dead_letters.letter import DeadLetter, DeadLetterFilter, parse_id
from hifi.dead_letters.reader import letters
from hifi.dead_letters.replay import CHUNK, replay
from hifi.errors import Misconfigured, Rejected, Retryable
from hifi.kafka.producer import Producer
from hifi.topics import Topics
from hifi_observe.settings import ObserveSettings

_BEGIN_WITHIN_S: Final = 30
"""What has not begun by then is left for another request."""
_WITHIN_S: Final = 60

logger = log.get(__name__)


class Order(BaseModel):
    """Which dead letters of a pipe are to go again: all that the filter takes, or of these the ids named."""

    model_config = ConfigDict(extra="forbid")

    service: str = Field("", description="Only those refused by this service.")
    reason: str = Field("", description="Only those with this reason.")
    destination: str = Field("", description="Only those for this destination.")
    ids: list[str] | None = Field(
        None, min_length=1, max_length=10_000, description="Only these, such as `3:1042`."
    )
    limit: int = Field(1000, ge=1, le=10_000, description="Let at most so many go.")


@dataclass(slots=True)
class Outcome:
    """What became of an order, in dead letters."""

    replayed: int = 0
    already: int = 0
    """Had been replayed before."""
    refused: int = 0
    """Can never be replayed."""
    missing: int = 0
    """Of the ids, those that are no dead letters of this pipe that the filter takes."""
    why: str = ""
    """Why some were refused."""
    more: bool = False
    """Some were left because of the limit or the time: give the order again."""


class Replays:
    """Carries out orders, one at a time."""

    def __init__(self, settings: ObserveSettings, topics: Topics) -> None:
        self._settings = settings
        self._topics = topics
        self.busy = False
        """An order is being carried out."""

    async def carry_out(self, pipe: str, order: Order) -> Outcome:
        """Let the letters go; do not call it while it is busy.

        Raises:
            Misconfigured: an id is none.
            Retryable: Kafka does not answer; what was done before that stays done.
        """
        places = {parse_id(one) for one in order.ids} if order.ids is not None else None
        wanted = DeadLetterFilter(
            pipe, order.destination or None, order.reason or None, service=order.service or None
        )
        outcome = Outcome()
        self.busy = True
        try:
            await asyncio.wait_for(self._all(wanted, places, order.limit, outcome), _WITHIN_S)
        except (Misconfigured, KafkaError, OSError, TimeoutError) as error:
            raise Retryable(
                f"Kafka does not answer ({error!r}); {outcome.replayed} were replayed, repeating is harmless"
            ) from None
        finally:
            self.busy = False
            logger.info(
                "dead-letters-replayed",
                pipe=pipe,
                filter=order.model_dump(exclude={"ids", "limit"}, exclude_defaults=True),
                replayed=outcome.replayed,
                refused=outcome.refused,
            )
        return outcome

    async def _all(
        self, wanted: DeadLetterFilter, places: set[tuple[int, int]] | None, limit: int, outcome: Outcome
    ) -> None:
        producer = Producer(self._settings.kafka, f"{self._settings.instance}-replay")
        await producer.start()
        try:
            begin_until_s, found, chunk = monotonic_s() + _BEGIN_WITHIN_S, 0, list[DeadLetter]()
            async with contextlib.aclosing(letters(self._settings.kafka, self._topics, wanted)) as dead:
                async for letter in dead:
                    if places is not None and (letter.partition, letter.offset) not in places:
                        continue
                    found += 1
                    if letter.replayed:
                        outcome.already += 1
                        continue
                    if outcome.replayed + len(chunk) == limit or monotonic_s() > begin_until_s:
                        outcome.more = True
                        break
                    chunk.append(letter)
                    if len(chunk) == CHUNK or outcome.replayed + len(chunk) == limit:
                        await self._let_go(producer, chunk, outcome)
                        chunk = []
            await self._let_go(producer, chunk, outcome)
            if places is not None and not outcome.more:
                outcome.missing = len(places) - found
        finally:
            await producer.stop()

    async def _let_go(self, producer: Producer, some: list[DeadLetter], outcome: Outcome) -> None:
        before = outcome.replayed
        try:
            async for _ in replay(producer, self._topics, some):
                outcome.replayed += 1
        except Rejected as why:
            outcome.why = outcome.why or why.detail
            outcome.refused += len(some) - (outcome.replayed - before)
