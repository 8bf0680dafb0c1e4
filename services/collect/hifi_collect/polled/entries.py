"""The progress of a source, kept in the compacted topic `source-progress`. The instance that took over last can write.

It is written in transactions of one transactional id for each pipe: Kafka refuses those of an earlier instance as soon
as a later one has begun, and the earlier one's transactions are complete then. So an instance that takes over knows
the whole progress of earlier readers.
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
            source: its name, without `;`. A pipe whose source changes begins again under another name.
        """
        self.entries: dict[str, Any] = {}
        """All entries that are in the topic."""
        self._settings = settings
        self._topic = settings.topics.source_progress
        self._prefix = f"{pipe};{source};"
        self._writer = FencedWriter(
            settings.kafka, settings.topics.source_writer(pipe), client_id=settings.instance
        )

    async def take_over(self) -> None:
        """End the right of earlier instances to write, then read their entries; retries until Kafka answers."""
        await self._writer.start()
        self.entries = {}
        handlers = {self._topic: self._take_record}
        follower = TopicFollower(self._settings.kafka, self._settings.instance, handlers)
        await follower.read_decided()

    async def keep(self, entries: Mapping[str, Any]) -> None:
        """Write entries, all or none; None removes one.

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
            self._set_entry(name, entry)

    async def stop(self) -> None:
        """Disconnect."""
        await self._writer.stop()

    def _take_record(self, key: bytes | None, value: bytes | None, _: int) -> None:
        key_text = (key or b"").decode()
        if key_text.startswith(self._prefix):
            self._set_entry(key_text.removeprefix(self._prefix), None if not value else orjson.loads(value))

    def _set_entry(self, name: str, entry: Any) -> None:
        if entry is None:
            self.entries.pop(name, None)
        else:
            self.entries[name] = entry
