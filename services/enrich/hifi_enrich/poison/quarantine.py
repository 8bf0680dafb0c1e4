"""Writes the records around a poison record, and makes the poison record a dead letter `poisoned`."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from hifi.delivery.dead_letters.record import dead_letter
from hifi.kafka.clients import assigned_consumer
from hifi.kafka.group_offsets import GroupOffsets, StartOffsets
from hifi.kafka.producer import Producer
from hifi.kafka.topics import Topics
from hifi.record.fields import fields
from hifi.record.headers import PIPE
from hifi.runtime import log
from hifi.runtime.clock import now_us
from hifi.runtime.errors import Rejected, Retryable
from hifi.spark.kafka_connector import PartitionOffsets
from hifi.spark.spark_session import SparkExited
from hifi_enrich.plan.dataframe import newer_offset
from hifi_enrich.poison.offset_notes import trial_note, unfinished_trial
from hifi_enrich.poison.search import OffsetRange, write_around_poison
from hifi_enrich.settings import EnrichSettings

WriteRange = Callable[[PartitionOffsets, PartitionOffsets, float], Awaitable[None]]
"""Enriches and writes the records from some offsets up to others within a time, or raises what Spark raises."""

_TRIAL_S: Final = 10.0
_TRIAL_EVENT_S: Final = 0.01

_KAFKA_ERRORS: Final = ("org.apache.kafka.common.errors.", "org.apache.kafka.common.KafkaException")

logger = log.get(__name__)


def is_kafka_failure(error: str) -> bool:
    """Whether a query failed because of Kafka rather than because of a record."""
    return any(name in error for name in _KAFKA_ERRORS) and "RecordTooLargeException" not in error


def trial_limit_s(records: int, stall_s: float) -> float:
    """The time in which a range of records has to be enriched, seconds; one that takes longer is halved."""
    return min(stall_s, _TRIAL_S + _TRIAL_EVENT_S * records)


class PoisonQuarantine:
    """Finds and quarantines the poison records that follow the committed offsets."""

    def __init__(
        self,
        settings: EnrichSettings,
        topics: Topics,
        offsets: GroupOffsets,
        write_range: WriteRange,
        poisoned: Callable[[str], None],
    ) -> None:
        """Search nothing yet.

        Args:
            settings: of enrich.
            topics: of the stream.
            offsets: connected.
            write_range: of the engine.
            poisoned: called with the pipe of each poison record, before its offset is committed.
        """
        self._poisoned = poisoned
        self._settings = settings
        self._topics = topics
        self._offsets = offsets
        self._write_range = write_range

    async def run(self, start: StartOffsets) -> int:
        """Write the records that the next batch would have read, except for poison records.

        Returns:
            Number of records that were quarantined.

        Raises:
            Retryable: Kafka failed, or an event needs a later revision of its pipe than the plan has. What was written
                until then is committed.
        """
        ends = await self._offsets.end()
        quarantined = 0
        for partition, first in sorted(start.offsets.items()):
            end = min(ends[partition], first + self._settings.enrich_max_offsets_per_trigger)
            known_bad = unfinished_trial(start.notes.get(partition, ""))
            whole_range = OffsetRange(partition, first, end)
            quarantined += await write_around_poison(
                whole_range, self._try_range, self._quarantine, known_bad
            )
        logger.warning("poison-search-finished", quarantined=quarantined)
        return quarantined

    async def _try_range(self, part: OffsetRange) -> bool:
        await self._offsets.commit({part.partition: part.first}, {part.partition: trial_note(part.end)})
        limit_s = trial_limit_s(part.end - part.first, self._settings.enrich_stall_s)
        try:
            await self._write_range({part.partition: part.first}, {part.partition: part.end}, limit_s)
        except SparkExited:
            raise  # the next process reads from the note which records it was
        except TimeoutError:
            await self._require_kafka()
            logger.warning("range-stalled", partition=part.partition, first=part.first, end=part.end)
            return False
        except Exception as error:  # noqa: BLE001 - Spark raises whatever the record causes
            text = str(error)
            if is_kafka_failure(text) or newer_offset(text) is not None or isinstance(error, OSError):
                raise Retryable(f"the search for a poison record was interrupted: {text[:300]}") from None
            logger.warning(
                "range-failed", partition=part.partition, first=part.first, end=part.end, error=text[:300]
            )
            return False
        await self._offsets.commit({part.partition: part.end})
        return True

    async def _require_kafka(self) -> None:
        """Check that Kafka answers: if it does not, that is why the records were not written in time."""
        try:
            async with asyncio.timeout(_TRIAL_S):
                await self._offsets.end()
        except (KafkaError, OSError) as error:
            raise Retryable(f"the search for a poison record was interrupted: {error!r}") from None

    async def _quarantine(self, part: OffsetRange) -> None:
        tp = TopicPartition(self._topics.normalized, part.partition)
        consumer = assigned_consumer(self._settings.kafka)
        producer = Producer(self._settings.kafka, f"{self._settings.instance}-quarantine")
        try:
            await consumer.start()
            consumer.assign([tp])
            consumer.seek(tp, part.first)
            record = await consumer.getone(tp)
            if record.offset == part.first:
                reason = Rejected(
                    "poisoned",
                    "Spark failed on this event again and again, or took too long, and on no other",
                )
                letter = dead_letter(record.key, record.value, record.headers, "enrich", reason, now_us())
                await producer.start()
                await producer.send_and_wait(self._topics.dead_letter, part.partition, [letter])
                logger.error("record-poisoned", topic=tp.topic, partition=tp.partition, offset=part.first)
                self._poisoned(fields(record.headers).get(PIPE, b"").decode("utf-8", "replace"))
        except (KafkaError, OSError) as error:
            raise Retryable(f"a poison record could not be quarantined: {error!r}") from error
        finally:
            await consumer.stop()
            await producer.stop()
        await self._offsets.commit({part.partition: part.end})
