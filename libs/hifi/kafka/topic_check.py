"""Wait until the topics that a service uses exist as the stream needs them."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from aiokafka.errors import KafkaError

from hifi.kafka.admin import partition_counts
from hifi.runtime.health import Health

_CONDITION: Final = "partitions"
_INTERVAL_S: Final = 2.0


class TopicCheck:
    """Holds back what is started after it until all topics have the stream's partition count."""

    def __init__(
        self, bootstrap: str, names: Sequence[str], partitions: Callable[[], int], health: Health
    ) -> None:
        """The service is not ready until the check has passed.

        Args:
            bootstrap: `HOST:PORT,…`.
            names: of the topics.
            partitions: returns the stream's partition count when the check begins.
            health: of the service.
        """
        self._bootstrap = bootstrap
        self._names = list(names)
        self._partitions = partitions
        self._health = health
        health.block(_CONDITION, "the topics have not been checked yet")

    async def start(self) -> None:
        """Wait until all topics have the stream's partition count."""
        partitions = self._partitions()
        while True:
            try:
                counts = await partition_counts(self._bootstrap, self._names)
                wrong_counts = {
                    name: counts.get(name, 0) for name in self._names if counts.get(name, 0) != partitions
                }
                if not wrong_counts:
                    self._health.unblock(_CONDITION)
                    return
                self._health.block(
                    _CONDITION,
                    f"the stream has {partitions} partitions, but {wrong_counts}; a stream never grows: start a new"
                    " one",
                )
            except (KafkaError, OSError) as error:
                self._health.block(_CONDITION, f"the partition counts cannot be read from Kafka: {error!r}")
            await asyncio.sleep(_INTERVAL_S)

    async def stop(self) -> None:
        """Nothing is open after the check."""
