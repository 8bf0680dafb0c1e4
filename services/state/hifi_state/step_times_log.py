"""The times that the steps of both colours count, on the control plane's Kafka."""

import asyncio
import contextlib
from typing import Final

import orjson
from aiokafka.errors import KafkaError

from hifi.delivery.colours import Colours, ColourState, decode, other
from hifi.kafka.producer import Producer
from hifi.kafka.topic_follower import TopicFollower
from hifi.kafka.topics import ControlTopics
from hifi.record.record import Record
from hifi.runtime import log
from hifi.runtime.clock import now_us
from hifi.runtime.errors import Overloaded
from hifi_state.fold.colour_times import NOT_KNOWN, ColourTimes, OtherColour, Sleep, other_colour
from hifi_state.settings import StateSettings

_FOLLOW_S: Final = 1.0
_RETRY_S: Final = 5.0
_BUFFER_BYTES: Final = 1024 * 1024
logger = log.get(__name__)


class StepTimesLog:
    """States the times of this colour, and follows those of the other one; while Kafka is away what was read holds."""

    def __init__(self, settings: StateSettings) -> None:
        """Connect nothing yet.

        Args:
            settings: `colours` and `colour` name the colours, if there are any.
        """
        self._settings = settings
        topics = ControlTopics(settings.colours)
        self._topic = topics.step_times
        self._topics = {topics.colours: self._take_colours, topics.step_times: self._take_times}
        self._colours: Colours | None = None
        self._times: dict[bytes, ColourTimes] = {}
        """Key of the record to what it states."""
        self._read_ms = 0
        """When everything was read last."""
        self.is_read: Final = asyncio.Event()
        """Set once everything was read."""
        self._producer: Producer | None = None

    async def follow(self) -> None:
        """Follow until cancelled; without colours nothing is to do."""
        if not self._settings.colours:
            return
        kafka, client = self._settings.control_bootstrap, self._settings.instance
        follower = TopicFollower(kafka, client, self._topics)
        producer = Producer(kafka, client, buffer_bytes=_BUFFER_BYTES)
        try:
            await follower.start()
            while True:
                try:
                    if self._producer is None:
                        await producer.start()
                        self._producer = producer
                    read_ms = now_us() // 1000
                    await follower.catch_up()
                    self._read_ms = read_ms
                    self.is_read.set()
                except (KafkaError, OSError) as error:
                    logger.warning("colours-unreadable", error=repr(error))
                    await asyncio.sleep(_RETRY_S)
                await asyncio.sleep(_FOLLOW_S)
        finally:
            self._producer = None
            await producer.stop()
            await follower.stop()

    def other(self, pipe: str, lateness_ms: int) -> OtherColour:
        """The state of a step in the other colour.

        Args:
            pipe: of the step.
            lateness_ms: of the step in this colour.
        """
        if not self._settings.colours:
            return NOT_KNOWN
        name = other(self._settings.colour)
        colour = None if self._colours is None else self._colours.colours.get(name)
        sleep = None
        if colour is not None and self._colours is not None and colour.state is ColourState.ASLEEP:
            sleep = Sleep(self._colours.at_ms, self._read_ms)
        return other_colour(self._times.get(_key(pipe, name)), sleep, lateness_ms, now_us() // 1000)

    def own_times(self, pipe: str, kept: ColourTimes | None) -> ColourTimes:
        """The times that this colour has stated for a step, and has to hold to.

        Args:
            pipe: of the step.
            kept: with its progress; None: the log is new, so that it has what was stated last of the one before.
        """
        name = self._settings.colour
        times = kept or self._times.get(_key(pipe, name)) or ColourTimes(0)
        colour = None if self._colours is None else self._colours.colours.get(name)
        return times if colour is None else times.woken(colour.woken_ms)

    def state(self, pipe: str, times: ColourTimes) -> None:
        """Write the times of this colour; the next ones follow where Kafka is away."""
        if self._producer is not None:
            record = Record(_key(pipe, self._settings.colour), orjson.dumps(times.encode()), [])
            with contextlib.suppress(Overloaded):
                self._producer.send(self._topic, 0, [record])

    def _take_colours(self, _: bytes | None, value: bytes | None, __: int) -> None:
        self._colours = decode(value)

    def _take_times(self, key: bytes | None, value: bytes | None, _: int) -> None:
        if key is not None and value:
            self._times[key] = ColourTimes.decode(orjson.loads(value))


def _key(pipe: str, colour: str) -> bytes:
    return f"{pipe}/{colour}".encode()
