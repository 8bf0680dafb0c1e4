"""Follow the topic `key-usage`: events that ingest accepted with each write key, by day."""

from hifi.kafka.key_usage import KeyUsage
from hifi.kafka.topic_follower import TopicFollower
from hifi_observe.settings import ObserveSettings

_FOLLOW_S = 2.0


class KeyUsageFollower:
    """Reads the topic; only requests for usage wait for it.

    Args:
        settings: of the service.
    """

    def __init__(self, settings: ObserveSettings) -> None:
        self.usage = KeyUsage()
        self.read = False
        """Whether the topic was ever read."""
        self._settings = settings

    async def run(self) -> None:
        """Follow until cancelled; while Kafka is away what was read last holds."""
        settings = self._settings
        handlers = {settings.topics.key_usage: self.usage.take}
        await TopicFollower(settings.kafka, settings.instance, handlers).keep_up(_FOLLOW_S, self._note_read)

    def _note_read(self) -> None:
        self.read = True
