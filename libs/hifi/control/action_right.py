"""The right to take one action: a fenced writer with a fixed transactional id lets only one actor at a time have it.

An actor that wants to act connects the writer, which fences every earlier holder: what those write later is refused
by Kafka. Only then the actions are read to their end, so nothing can be added between that and the record of the new
action. The offset of this record is the action's fencing token: an executor refuses a token that is lower than the last
one it saw, so an actor that was frozen in an action changes nothing when it wakes.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

from aiokafka.errors import KafkaError

from hifi.control.action import Action, ActionHistory, ActionState, decode, encode
from hifi.control.permission import Permission
from hifi.kafka.fenced_writer import FencedWriter, Overtaken
from hifi.kafka.producer import Producer
from hifi.kafka.topic_follower import TopicFollower
from hifi.record.record import Record
from hifi.runtime.clock import now_us
from hifi.runtime.errors import HifiError, Retryable

_TIMEOUT_S: Final = 20
"""Bound on taking the right and on writing a record, seconds."""

_UNENDED: Final = {True: "it did not end in time", False: "another process of its actor took over"}
"""Outcome of an action that still runs when another one begins, by whether it is overdue."""


class ActionRefused(HifiError):
    """The action may not be taken now; the text says what it waits for."""


class ActionLog(TopicFollower):
    """Reads the topic of actions.

    Args:
        bootstrap: the control plane's Kafka, `HOST:PORT,…`.
        topic: of the actions, with one partition.
        client_id: name in the broker's logs.
    """

    def __init__(self, bootstrap: str, topic: str, client_id: str) -> None:
        super().__init__(bootstrap, client_id, {topic: self._take_action}, rereads=False)
        self.history = ActionHistory()

    def _take_action(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        del key
        self.history.put(decode(value or b"", offset))


class ActionRight:
    """Takes the right to one action after the other.

    Args:
        bootstrap: the control plane's Kafka, `HOST:PORT,…`.
        topic: of the actions.
        transactional_id: the same for all actors of a control plane.
        client_id: name in the broker's logs.
    """

    def __init__(self, bootstrap: str, topic: str, transactional_id: str, client_id: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._client_id = client_id
        self._writer = FencedWriter(bootstrap, transactional_id, client_id)
        self.log = ActionLog(bootstrap, topic, client_id)

    async def start(self) -> None:
        """Connect and read the actions so far; retries until Kafka answers and the topic exists."""
        await self.log.start()

    async def stop(self) -> None:
        """Disconnect."""
        await self.log.stop()

    async def begin(self, action: Action, allowed: Callable[[ActionHistory], Permission]) -> Action:
        """Take the right to an action; returns it with its token. Actions that still run are ended as failed.

        Args:
            action: the action to take.
            allowed: decides from the actions so far, which cannot change until the action has begun; it refuses
                while an action runs that is not overdue and may still change something.

        Raises:
            ActionRefused: it is not allowed, or another actor was faster.
            Retryable: Kafka did not answer.
        """
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await self._writer.take_over()
                await self.log.catch_up()
                permission = allowed(self.log.history)
                if not permission.granted:
                    raise ActionRefused(permission.reason)
                ended_us = now_us()
                failed_actions = [
                    running_action.ended(
                        ActionState.FAILED, ended_us, _UNENDED[running_action.overdue(ended_us)]
                    )
                    for running_action in self.log.history.running
                ]
                token = await self._writer.write(
                    self._topic, [_record(written_action) for written_action in (*failed_actions, action)]
                )
            # Kafka makes a committed record readable a little later, so it is not read back.
            started_action = replace(action, token=token)
            for written_action in (*failed_actions, started_action):
                self.log.history.put(written_action)
            return started_action
        except (KafkaError, Overtaken, Retryable) as error:
            return await self._settle(action, error)
        except (TimeoutError, OSError) as error:
            raise Retryable(f"Kafka did not answer within {_TIMEOUT_S} s") from error
        finally:
            await self._writer.stop()

    async def take(
        self,
        action: Action,
        allowed: Callable[[ActionHistory], Permission],
        change: Callable[[int], Awaitable[None]],
    ) -> None:
        """Take one action: begin it, make its change, and record its end.

        Args:
            action: the action to take.
            allowed: as for `begin`.
            change: gets the fencing token; the action has failed if it raises.

        Raises:
            ActionRefused: it is not allowed, or another actor was faster.
            Retryable: Kafka did not answer.
            HifiError: as `change` raised it.
        """
        started_action = await self.begin(action, allowed)
        assert started_action.token is not None
        try:
            await change(started_action.token)
        except Exception as error:
            await self.end(started_action, ActionState.FAILED, str(error) or repr(error))
            raise
        await self.end(started_action, ActionState.DONE, "done")

    async def _settle(self, action: Action, failure: Exception) -> Action:
        """After a failure: the record may be committed, or about to be. Taking the right again ends the doubt."""
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await self._writer.take_over()
                await self.log.catch_up()
        except (KafkaError, Overtaken, Retryable, TimeoutError, OSError) as error:
            raise Retryable(f"whether the action was recorded is unknown: {error!r}") from error
        for running_action in self.log.history.running:
            if replace(running_action, token=None) == action:
                return running_action
        if isinstance(failure, Overtaken):
            raise ActionRefused("another actor was faster") from failure
        raise Retryable(f"the action was not recorded: {failure!r}") from failure

    async def end(self, action: Action, state: ActionState, outcome: str) -> None:
        """Give the right back.

        Args:
            action: as `begin` returned it.
            state: done or failed.
            outcome: what came out, for people.

        Raises:
            Retryable: Kafka did not answer; the action becomes overdue, and another one may begin then.
        """
        producer = Producer(self._bootstrap, self._client_id)
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await producer.start()
                ended_action = action.ended(state, now_us(), outcome)
                await producer.send_and_wait(self._topic, 0, [_record(ended_action)])
        except (KafkaError, HifiError, TimeoutError, OSError) as error:
            raise Retryable(f"the end of the action could not be recorded: {error!r}") from error
        finally:
            await producer.stop(timeout_s=0)


def _record(action: Action) -> Record:
    return Record(None, encode(action), [])
