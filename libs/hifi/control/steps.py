"""The right to take one step: a transactional producer with a fixed id lets only one actor at a time have it.

Whoever wants to take a step initializes the producer, which fences every earlier holder: what those write afterwards is
refused by Kafka. Only then the actions are read to their end, so nothing can be added between that and the record of
the new step. The offset of this record is the step's fencing token: an executor refuses a token that is lower than the
last one it saw, so an actor that was frozen in a step changes nothing when it wakes.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Final

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from hifi.control.action import Action, ActionHistory, ActionState, decode, encode
from hifi.control.permission import Permission
from hifi.kafka.batches import forget_errors
from hifi.kafka.clients import close
from hifi.kafka.security import client_options
from hifi.kafka.topic_follower import TopicFollower
from hifi.runtime.clock import now_us
from hifi.runtime.errors import HifiError, Retryable

_TIMEOUT_S: Final = 20
"""Bound on taking the right and on writing a record, seconds."""

_FENCED: Final = frozenset({"ProducerFenced", "InvalidProducerEpoch", "InvalidProducerIdMapping"})
"""Names of the errors that a producer gets after another one with its id was initialized."""


_UNENDED: Final = {True: "it did not end in time", False: "another process of its actor took over"}
"""Outcome of a step that still runs when another one begins, by whether it is overdue."""


class StepRefused(HifiError):
    """The step may not be taken now; the text says what it waits for."""


class ActionLog(TopicFollower):
    """Reads the topic of actions.

    Args:
        bootstrap: the control plane's Kafka, `HOST:PORT,…`.
        topic: of the actions, with one partition.
        client_id: name in the broker's logs.
    """

    def __init__(self, bootstrap: str, topic: str, client_id: str) -> None:
        super().__init__(bootstrap, client_id, {topic: self._put})
        self.history = ActionHistory()

    def _put(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        del key
        self.history.put(decode(value or b"", offset))


class StepRight:
    """Takes the right to one step after the other.

    Args:
        bootstrap: the control plane's Kafka, `HOST:PORT,…`.
        topic: of the actions.
        transactional_id: the same for all actors of a control plane.
        client_id: name in the broker's logs.
    """

    def __init__(self, bootstrap: str, topic: str, transactional_id: str, client_id: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._transactional_id = transactional_id
        self._client_id = client_id
        self.log = ActionLog(bootstrap, topic, client_id)

    async def start(self) -> None:
        """Connect and read the actions so far; retries until Kafka answers and the topic exists."""
        await self.log.start()

    async def stop(self) -> None:
        """Disconnect."""
        await self.log.stop()

    async def begin(self, action: Action, allowed: Callable[[ActionHistory], Permission]) -> Action:
        """Take the right to a step; returns the action with its token. Steps that still run are ended as failed.

        Args:
            action: the step to take.
            allowed: decides from the actions so far, which cannot change until the step has begun; it refuses
                while a step runs that is not overdue and may still change something.

        Raises:
            StepRefused: it is not allowed, or another actor was faster.
            Retryable: Kafka did not answer.
        """
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                async with self._right() as producer:
                    await self.log.catch_up()
                    granted = allowed(self.log.history)
                    if not granted.granted:
                        raise StepRefused(granted.reason)
                    async with producer.transaction():
                        now = now_us()
                        left = [
                            running_action.ended(
                                ActionState.FAILED, now, _UNENDED[running_action.overdue(now)]
                            )
                            for running_action in self.log.history.running
                        ]
                        for end in left:
                            await producer.send_and_wait(self._topic, encode(end), partition=0)
                        record = await producer.send_and_wait(self._topic, encode(action), partition=0)
                # Kafka makes a committed record readable a little later, so it is not read back.
                begun = replace(action, token=record.offset)
                for recorded_action in (*left, begun):
                    self.log.history.put(recorded_action)
                return begun
        except KafkaError as error:
            return await self._settle(action, error)
        except (TimeoutError, OSError) as error:
            raise Retryable(f"Kafka did not answer within {_TIMEOUT_S} s") from error

    async def take(
        self,
        action: Action,
        allowed: Callable[[ActionHistory], Permission],
        change: Callable[[int], Awaitable[None]],
    ) -> None:
        """Take one step: begin it, make its change, and record its end.

        Args:
            action: the step to take.
            allowed: as for `begin`.
            change: gets the fencing token; the step has failed if it raises a HifiError.

        Raises:
            StepRefused: it is not allowed, or another actor was faster.
            Retryable: Kafka did not answer.
            HifiError: as `change` raised it.
        """
        begun = await self.begin(action, allowed)
        assert begun.token is not None
        try:
            await change(begun.token)
        except HifiError as error:
            await self.end(begun, ActionState.FAILED, str(error))
            raise
        await self.end(begun, ActionState.DONE, "done")

    @contextlib.asynccontextmanager
    async def _right(self) -> AsyncIterator[AIOKafkaProducer]:
        """A producer that has fenced every earlier one; what those had begun to commit is complete."""
        producer = AIOKafkaProducer(
            **client_options(self._bootstrap),
            client_id=self._client_id,
            transactional_id=self._transactional_id,
        )
        try:
            await producer.start()
            yield producer
        finally:
            await close(producer)
            forget_errors(producer)

    async def _settle(self, action: Action, failure: KafkaError) -> Action:
        """After a failure: the record may be committed, or about to be. Taking the right again ends the doubt."""
        try:
            async with asyncio.timeout(_TIMEOUT_S), self._right():
                await self.log.catch_up()
        except (KafkaError, TimeoutError, OSError) as error:
            raise Retryable(f"whether the step was recorded is unknown: {error!r}") from error
        for running_action in self.log.history.running:
            if replace(running_action, token=None) == action:
                return running_action
        if type(failure).__name__ in _FENCED:
            raise StepRefused("another actor was faster") from failure
        raise Retryable(f"the step was not recorded: {failure!r}") from failure

    async def end(self, action: Action, state: ActionState, outcome: str) -> None:
        """Give the right back.

        Args:
            action: as `begin` returned it.
            state: done or failed.
            outcome: what came out, for people.

        Raises:
            Retryable: Kafka did not answer; the step becomes overdue, and another one may begin then.
        """
        producer = AIOKafkaProducer(**client_options(self._bootstrap), client_id=self._client_id, acks="all")
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await producer.start()
                await producer.send_and_wait(
                    self._topic, encode(action.ended(state, now_us(), outcome)), partition=0
                )
        except (KafkaError, TimeoutError, OSError) as error:
            raise Retryable(f"the end of the step could not be recorded: {error!r}") from error
        finally:
            await close(producer)
