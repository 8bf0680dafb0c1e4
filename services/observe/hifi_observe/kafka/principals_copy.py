"""observe's own copy of the principals: it needs no other service, and only requests wait for it."""

import asyncio
import contextlib
from typing import Final

from hifi.control.principals.principal import Principals
from hifi.kafka.topic_follower import TopicFollower
from hifi.runtime import log
from hifi.runtime.clock import monotonic_s
from hifi.runtime.health import Health

_INTERVAL_S: Final = 2.0
FRESH_S: Final = 10.0
_SUBJECT: Final = "principals"

logger = log.get(__name__)


class TopicCopy:
    """The principals as the topic has them. While it cannot be read, what was read last holds.

    Args:
        bootstrap: the control plane's Kafka.
        client_id: name in the broker's logs.
        topic: of the principals.
        health: gets a warning while the topic cannot be read.
    """

    def __init__(self, bootstrap: str, client_id: str, topic: str, health: Health) -> None:
        self.principals = Principals()
        self._bootstrap = bootstrap
        self._client_id = client_id
        self._topic = topic
        self._health = health
        self._read_s: float | None = None

    @property
    def read(self) -> bool:
        """Whether the topic was ever read."""
        return self._read_s is not None

    @property
    def fresh(self) -> bool:
        """Whether it was read within the last 10 seconds."""
        return self._read_s is not None and monotonic_s() - self._read_s < FRESH_S

    async def run(self) -> None:
        """Follow the topic, until cancelled, whatever fails."""
        while True:
            try:
                await self._follow()
            except Exception as error:  # noqa: BLE001 - minutes and alarms go on whatever the reason is
                self._warn(error)
            await asyncio.sleep(_INTERVAL_S)

    async def _follow(self) -> None:
        principals = Principals()
        follower = TopicFollower(self._bootstrap, self._client_id, {self._topic: principals.take})
        try:
            await follower.start(self._warn)
            self.principals = principals
            began_s = monotonic_s()
            while True:
                self._read_s = began_s
                self._health.warn(_SUBJECT, None)
                await asyncio.sleep(_INTERVAL_S)
                began_s = monotonic_s()
                async with asyncio.timeout(FRESH_S):
                    await follower.catch_up()
        finally:
            with contextlib.suppress(Exception):
                await follower.stop()

    def _warn(self, error: Exception) -> None:
        consequence = "those read last hold" if self.read else "nobody can sign in"
        self._health.warn(_SUBJECT, f"the topic {self._topic} cannot be read, {consequence}: {error!r}")
        logger.warning("principals-unreadable", topic=self._topic, error=repr(error))
