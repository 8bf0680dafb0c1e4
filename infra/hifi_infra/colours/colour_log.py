"""The record of the colours on the control plane's Kafka: read it, and write the next one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from aiokafka.errors import KafkaError

from hifi.delivery.colours import Colours, decode
from hifi.kafka.fenced_writer import FencedWriter, Overtaken
from hifi.kafka.topic_follower import TopicFollower
from hifi.kafka.topics import ControlTopics
from hifi.runtime.errors import Retryable

_TIMEOUT_S: Final = 20
"""Bound on one attempt to write a record, seconds."""
_ATTEMPTS: Final = 5
"""Attempts to write a record while others take the right to do so over."""


class ColourLog(TopicFollower):
    """Follows the topic of colours.

    Args:
        bootstrap: the control plane's Kafka, `HOST:PORT,…`.
        control: topics of the control plane.
        client_id: name in the broker's logs.
    """

    def __init__(self, bootstrap: str, control: ControlTopics, client_id: str) -> None:
        super().__init__(bootstrap, client_id, {control.colours: self._take_record})
        self.newest: Colours | None = None
        """The newest record; None: there is none."""
        self.newest_offset = -1
        """Its offset, which grows from record to record; -1: there is none."""
        self._topic = control.colours
        # Of the actors, too: one that begins an action later, or writes, refuses what was made of an older record.
        self._writer = FencedWriter(bootstrap, control.actor, client_id)

    async def write(self, change: Callable[[Colours | None], Awaitable[Colours]]) -> None:
        """Write the record that follows the newest one; nobody else has written between the two.

        Args:
            change: makes it of the newest record; called again with the next one when somebody else took over.

        Raises:
            Retryable: Kafka did not answer, or others took over again and again.
            HifiError: as `change` raised it; nothing was written.
        """
        for _ in range(_ATTEMPTS):
            try:
                async with asyncio.timeout(_TIMEOUT_S):
                    await self._writer.take_over()
                    await self.catch_up()
                    colours = await change(self.newest)
                    offset = await self._writer.write(self._topic, [colours.record()])
                # Kafka makes a committed record readable a little later, so it is not read back.
                self.newest, self.newest_offset = colours, offset
                return
            except Overtaken:
                continue
            except (KafkaError, TimeoutError, OSError) as error:
                raise Retryable(
                    f"Kafka did not answer; whether the record of the colours was written is unknown: {error!r}"
                ) from error
            finally:
                await self._writer.stop()
        raise Retryable("the record of the colours was not written: others change it all the time; try again")

    def _take_record(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        del key
        self.newest, self.newest_offset = decode(value), offset
