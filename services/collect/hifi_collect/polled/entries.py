"""How far a source is read, kept in the compacted topic `source-progress`. The instance that took over last can write.

It is written in transactions of one transactional id for each pipe: Kafka refuses those of an earlier instance as soon
as a later one has begun, and what the earlier one wrote before is complete then. So whoever takes over knows
everything that an earlier reader was allowed to do.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from hifi.kafka.fenced_writer import FencedWriter, Overtaken
from hifi.kafka.settings import ServiceSettings
from hifi.kafka.topic_follower import TopicFollower
from hifi.record.record import Record
from hifi.runtime.errors import Fenced, Retryable


class SourceEntries:
    """Entries about one source, JSON by name."""

    def __init__(self, settings: ServiceSettings, pipe: str, source: str) -> None:
        """Nothing is known before `take_over`.

        Args:
            settings: of the service.
            pipe: name.
            source: name of what is read, without `;`. A pipe whose source changes begins again under another name.
        """
        self.entries: dict[str, Any] = {}
        """Everything that is written down."""
        self._settings = settings
        self._topic = settings.topics.source_progress
        self._prefix = f"{pipe};{source};"
        self._writer = FencedWriter(
            settings.kafka, settings.topics.source_writer(pipe), client_id=settings.instance
        )

    async def take_over(self) -> None:
        """End the right of every earlier instance to write, then read what they wrote; retries until Kafka answers."""
        await self._writer.start()
        self.entries = {}
        takes = {self._topic: self._take}
        follower = TopicFollower(self._settings.kafka, self._settings.instance, takes)
        try:
            await follower.start()
        finally:
            await follower.stop()

    async def keep(self, entries: Mapping[str, Any]) -> None:
        """Write entries down, all or none; None removes one.

        Raises:
            Fenced: another instance has taken over, or it is not known whether they were written. Take over again.
        """
        records = [
            Record(f"{self._prefix}{name}".encode(), None if entry is None else orjson.dumps(entry), [])
            for name, entry in entries.items()
        ]
        try:
            await self._writer.write(self._topic, records)
        except (Overtaken, Retryable) as error:
            raise Fenced(f"the progress of the source was not written: {error}") from error
        for name, entry in entries.items():
            self._set(name, entry)

    async def stop(self) -> None:
        """Disconnect."""
        await self._writer.stop()

    def _take(self, key: bytes | None, value: bytes | None, _: int) -> None:
        text = (key or b"").decode()
        if text.startswith(self._prefix):
            self._set(text.removeprefix(self._prefix), None if not value else orjson.loads(value))

    def _set(self, name: str, entry: Any) -> None:
        if entry is None:
            self.entries.pop(name, None)
        else:
            self.entries[name] = entry
