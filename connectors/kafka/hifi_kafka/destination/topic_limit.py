"""The largest batch that the topic of a destination takes: read when Kafka refuses one, or learned."""

from typing import Final

from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError

from hifi.kafka.clients import started_admin
from hifi_kafka.declaration import KafkaDestinationSettings

MAX_BATCH_BYTES: Final = 128 * 1024
"""Of several records, until a topic is known to take less (Kafka's default is 1 MiB)."""
_SMALLEST_BYTES: Final = 1024
_CONFIG: Final = "max.message.bytes"


class TopicLimit:
    """The limit of one topic, for all partitions of a destination."""

    def __init__(self, settings: KafkaDestinationSettings, pipe: str) -> None:
        """Start with the default limit.

        Args:
            settings: of the destination.
            pipe: name.
        """
        self._settings, self._pipe = settings, pipe
        self.batch_bytes = MAX_BATCH_BYTES
        """Largest batch to send."""

    async def lower(self, used_bytes: int) -> bool:
        """Lower the limit after Kafka refused a batch.

        Args:
            used_bytes: the limit that the refused batch kept.

        Returns:
            Whether smaller batches may be taken; if not, a record is too large.
        """
        if self.batch_bytes < used_bytes:
            return True
        topic_bytes = await self._topic_bytes()
        # None: hifi may not read it.
        smaller_bytes = max(used_bytes // 2, _SMALLEST_BYTES) if topic_bytes is None else topic_bytes
        smaller_bytes = self.batch_bytes = min(smaller_bytes, used_bytes)
        return smaller_bytes < used_bytes

    async def _topic_bytes(self) -> int | None:
        settings = self._settings
        resource = ConfigResource(ConfigResourceType.TOPIC, settings.topic)
        try:
            async with started_admin(
                settings.bootstrap, f"hifi-{self._pipe}", security=settings.security, pipe=self._pipe
            ) as admin:
                answers = await admin.describe_configs([resource])
        except KafkaError:
            return None
        for answer in answers:
            for code, _, _, _, entries in answer.resources:
                values = {configuration[0]: configuration[1] for configuration in entries}
                if not code and values.get(_CONFIG):
                    return int(values[_CONFIG])
        return None
