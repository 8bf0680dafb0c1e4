"""Decides whether this collect reads the sources: of two colours, the one with the larger share of requests reads them.

The next reader goes on from the last position. It is kept for topics in the source's own Kafka, in one consumer group
of both colours, and for tables and objects in the control plane's Kafka.
"""

from collections.abc import Callable
from typing import Final

from hifi.delivery.colours import Colours, decode
from hifi.kafka.topic_follower import TopicFollower
from hifi.kafka.topics import ControlTopics
from hifi.runtime import log
from hifi.runtime.health import Health
from hifi_collect.settings import CollectSettings

_FOLLOW_S: Final = 0.5
_WARNING: Final = "colours"

logger = log.get(__name__)


class SourceColour:
    """Follows the record of the colours; without colours sources are always read.

    Args:
        settings: `colours` and `colour` name the colours, if there are any.
        health: gets a warning while sources are not read.
    """

    def __init__(self, settings: CollectSettings, health: Health) -> None:
        self._settings, self._health = settings, health
        self._colours: Colours | None = None
        self.on_change: Callable[[], None] = lambda: None
        """Called when sources are to be read from now on, or no longer."""
        self._warn()

    @property
    def reads(self) -> bool:
        """Whether sources are to be read here; not before the record of the colours was read."""
        if not self._settings.colours:
            return True
        return self._colours is not None and self._colours.source_reader == self._settings.colour

    async def follow(self) -> None:
        """Follow the record until cancelled; while Kafka is away the last record holds."""
        if not self._settings.colours:
            return
        topic = ControlTopics(self._settings.colours).colours
        follower = TopicFollower(
            self._settings.control_bootstrap, self._settings.instance, {topic: self._take_record}
        )
        await follower.keep_up(_FOLLOW_S)

    def _take_record(self, _: bytes | None, value: bytes | None, __: int) -> None:
        previous_reads, self._colours = self.reads, decode(value)
        if self.reads != previous_reads:
            logger.info("source-colour-changed", reads=self.reads)
            self.on_change()
        self._warn()

    def _warn(self) -> None:
        reader = "no colour that is known yet" if self._colours is None else self._colours.source_reader
        self._health.warn(_WARNING, None if self.reads else f"sources are not read here but by {reader}")
