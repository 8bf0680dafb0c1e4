"""When each token or key was used last: noted by each instance, and shared over a compacted topic."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

import orjson
from aiokafka.errors import KafkaError

from hifi.record.record import Record
from hifi.record.typed_body import RecordBodyReader
from hifi.runtime import log
from hifi.runtime.clock import MICROSECONDS
from hifi.runtime.errors import HifiError

_WRITE_S: Final = 5.0
"""Time between looks for uses to write."""
_PERIOD_US: Final = 60 * MICROSECONDS
"""A use is written if the one before it that was written is older than this."""


@dataclass(frozen=True, slots=True)
class _NewestUse:
    at_us: int


_USE: Final = RecordBodyReader(_NewestUse, "a use")
logger = log.get(__name__)


class LastUses:
    """The newest uses that this instance has seen, and those that all instances have written."""

    def __init__(self) -> None:
        self._noted: dict[str, int] = {}
        self._written: dict[str, int] = {}

    def note(self, name: str, at_us: int) -> None:
        """Note a use.

        Args:
            name: of what is used; not a secret.
            at_us: now, microseconds since 1970 UTC.
        """
        self._noted[name] = at_us

    def take(self, key: bytes | None, value: bytes | None, _: int) -> None:
        """Take in a record of the topic.

        Raises:
            ValueError: it is not one.
        """
        try:
            name = (key or b"").decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"not the record of a use: {error}") from None
        self._written[name] = max(_USE.of_value(value).at_us, self._written.get(name, 0))

    def due(self) -> list[Record]:
        """The records to write."""
        return [
            Record(name.encode(), orjson.dumps({"at_us": at_us}), [])
            for name, at_us in self._noted.items()
            if at_us - self._written.get(name, 0) >= _PERIOD_US
        ]

    def at_us(self, name: str, since_us: int) -> int | None:
        """The last use, to a minute; None: there was none since the given time, when the name was given."""
        newest_us = max(self._noted.get(name, 0), self._written.get(name, 0))
        return newest_us if newest_us >= since_us else None

    async def run(self, write: Callable[[Sequence[Record]], Awaitable[None]]) -> None:
        """Write uses until cancelled. What cannot be written is tried again; nothing waits for it.

        Args:
            write: writes records to the topic.
        """
        failing = False
        while True:
            await asyncio.sleep(_WRITE_S)
            records = self.due()
            if not records:
                continue
            try:
                await write(records)
            except (KafkaError, HifiError, OSError, TimeoutError) as error:
                if not failing:
                    logger.warning("last-uses-not-written", error=repr(error))
                failing = True
                continue
            failing = False
            for record in records:
                self.take(record.key, record.value, 0)
