"""Passing a range on around the records that Spark dies of."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from hifi import log
from hifi.clock import now_us
from hifi.dead_letters.record import dead_letter
from hifi.errors import Rejected, Retryable
from hifi.kafka.producer import Producer
from hifi.topics import Topics
from hifi_enrich.frame import newer_version
from hifi_enrich.offsets import GroupOffsets, Start
from hifi_enrich.poison import Range, search, trial_note, unfinished_trial
from hifi_enrich.settings import EnrichSettings

PassOn = Callable[[Mapping[int, int], Mapping[int, int]], Awaitable[None]]
"""Writes the records from some offsets up to others, or raises what Spark raises."""

_KAFKAS_FAULT: Final = ("org.apache.kafka.common.errors.", "org.apache.kafka.common.KafkaException")

logger = log.get(__name__)


def is_infrastructure(error: str) -> bool:
    """Kafka is to blame for this death of a query, not a record."""
    return any(name in error for name in _KAFKAS_FAULT) and "RecordTooLargeException" not in error


class Burial:
    """Finds and buries poisoned records from where the group stands on."""

    def __init__(
        self, settings: EnrichSettings, topics: Topics, offsets: GroupOffsets, pass_on: PassOn
    ) -> None:
        self._settings = settings
        self._topics = topics
        self._offsets = offsets
        self._pass_on = pass_on

    async def run(self, start: Start) -> int:
        """Go through what the next batch would have read.

        Returns:
            How many records were buried.

        Raises:
            Retryable: Kafka, or an event of a version that the plan does not know, came in between; what was passed
                on is committed.
        """
        ends = await self._offsets.end()
        buried = 0
        for partition, first in sorted(start.offsets.items()):
            end = min(ends[partition], first + self._settings.enrich_max_offsets_per_trigger)
            known_bad = unfinished_trial(start.notes.get(partition, ""))
            buried += await search(Range(partition, first, end), self._attempt, self._bury, known_bad)
        logger.warning("poison-search-ended", buried=buried)
        return buried

    async def _attempt(self, part: Range) -> bool:
        await self._offsets.commit({part.partition: part.first}, {part.partition: trial_note(part.end)})
        try:
            await self._pass_on({part.partition: part.first}, {part.partition: part.end})
        except Exception as error:  # noqa: BLE001 - Spark raises whatever the record made it raise
            text = str(error)
            if is_infrastructure(text) or newer_version(text) is not None or isinstance(error, OSError):
                raise Retryable(f"the search for a poisoned record was cut short: {text[:300]}") from None
            logger.warning(
                "range-fails", partition=part.partition, first=part.first, end=part.end, error=text[:300]
            )
            return False
        await self._offsets.commit({part.partition: part.end})
        return True

    async def _bury(self, part: Range) -> None:
        tp = TopicPartition(self._topics.normalized, part.partition)
        consumer = AIOKafkaConsumer(bootstrap_servers=self._settings.kafka, enable_auto_commit=False)
        producer = Producer(self._settings.kafka, f"{self._settings.instance}-burial")
        try:
            await consumer.start()
            consumer.assign([tp])
            consumer.seek(tp, part.first)
            record = await consumer.getone(tp)
            if record.offset == part.first:
                why = Rejected("poisoned", "Spark died of this event again and again, and only of this one")
                letter = dead_letter(record.key, record.value, record.headers, "enrich", why, now_us())
                await producer.start()
                await producer.send_and_wait(self._topics.dead_letter, part.partition, [letter])
                logger.error("record-poisoned", topic=tp.topic, partition=tp.partition, offset=part.first)
        except (KafkaError, OSError) as error:
            raise Retryable(f"a poisoned record could not be put away: {error!r}") from error
        finally:
            await consumer.stop()
            await producer.stop()
        await self._offsets.commit({part.partition: part.end})
