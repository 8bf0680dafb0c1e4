"""Writes the records around a poison record, and makes the poison record a dead letter `poisoned`."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from hifi.delivery.dead_letters.record import dead_letter
from hifi.kafka.clients import assigned_consumer
from hifi.kafka.group_offsets import GroupOffsets, StartOffsets
from hifi.kafka.producer import Producer
from hifi.kafka.topics import Topics
from hifi.record.headers import Headers
from hifi.runtime import log
from hifi.runtime.clock import now_us
from hifi.runtime.errors import Rejected, Retryable
from hifi.spark.kafka_connector import PartitionOffsets
from hifi.spark.spark_session import SparkExited
from hifi_enrich.plan.dataframe import NEWER_REVISION, newer_offset
from hifi_enrich.poison.offset_notes import trial_note, unfinished_trial, was_tried_twice
from hifi_enrich.poison.poisoned_pipes import SEPARATOR
from hifi_enrich.poison.search import OffsetRange, write_around_poison
from hifi_enrich.query.written_records import skip_written
from hifi_enrich.settings import EnrichSettings

_TRIAL_S: Final = 10.0
_TRIAL_EVENT_S: Final = 0.01
_TRIALS_OF_ONE: Final = 2
"""Trials of a single record before it is blamed. What kept Spark from the first one may be over at the second."""

_KAFKA_ERRORS: Final = ("org.apache.kafka.common.errors.", "org.apache.kafka.common.KafkaException")

logger = log.get(__name__)


def is_kafka_failure(error: str) -> bool:
    """Whether a query failed because of Kafka rather than because of a record."""
    return any(name in error for name in _KAFKA_ERRORS) and "RecordTooLargeException" not in error


def trial_limit_s(records: int, stall_s: float) -> float:
    """The time in which a range of records has to be enriched, seconds; a slower range is halved."""
    return min(stall_s, _TRIAL_S + _TRIAL_EVENT_S * records)


class TrialEngine(Protocol):
    """The jobs of the engine that a search needs."""

    async def write_range(self, start: PartitionOffsets, end: PartitionOffsets, limit_s: float) -> None:
        """As `SparkEngine.write_range`."""

    async def check_spark(self, limit_s: float) -> None:
        """As `SparkEngine.check_spark`."""


@dataclass(frozen=True, slots=True)
class _UnparsedRecord:
    """Stands in for a record of which only the offset is known."""

    offset: int
    key: None = None
    value: None = None
    headers: tuple[tuple[str, bytes], ...] = ()


class _PlanOutOfDate(Exception):
    """The next plan quarantines a revision whose events this plan still enriches."""


class PoisonQuarantine:
    """Finds and quarantines the poison records that follow the committed offsets."""

    def __init__(
        self,
        settings: EnrichSettings,
        topics: Topics,
        offsets: GroupOffsets,
        engine: TrialEngine,
        on_poisoned: Callable[[Headers], bool],
        leading: Callable[[], bool],
        own_notes: dict[int, str],
    ) -> None:
        """Search nothing yet.

        Args:
            settings: of enrich.
            topics: of the stream.
            offsets: connected.
            engine: that runs the newest plan.
            on_poisoned: called with the headers of each poison record, before its offset is committed; returns whether
                only the next plan quarantines the record's revision.
            leading: whether this instance leads and the service is not to stop.
            own_notes: partition to the last note of a trial that this process committed and survived; kept by the
                caller.
        """
        self._on_poisoned = on_poisoned
        self._leading = leading
        self._settings = settings
        self._topics = topics
        self._offsets = offsets
        self._engine = engine
        self._own_notes = own_notes
        self._quarantined_records = 0
        self._tried_alone: tuple[int, int] | None = None
        """Partition and offset of a record whose trial was interrupted once."""

    async def run(self, start: StartOffsets) -> int:
        """Write the records that the next batch would have read, except for poison records.

        The search ends early once the next plan quarantines a revision, since each of its events would be searched for
        with this plan.

        Args:
            start: the first records without output, and the notes beside the committed offsets.

        Returns:
            Number of records that were quarantined.

        Raises:
            Retryable: Kafka failed, or Spark fails on any record, or this instance does not lead any more, or an event
                needs a later revision of its pipe than the plan has. The offsets of records written until then are
                committed.
            SparkExited: Spark's JVM has exited, or Spark has stopped in it, or a task does not end.
        """
        end_offsets = await self._offsets.end()
        self._quarantined_records = 0
        try:
            await self._search(start, end_offsets)
        except _PlanOutOfDate:
            logger.warning("poison-search-ended-for-a-new-plan", quarantined=self._quarantined_records)
        else:
            logger.warning("poison-search-finished", quarantined=self._quarantined_records)
        return self._quarantined_records

    async def _search(self, start: StartOffsets, end_offsets: Mapping[int, int]) -> None:
        for partition, first_offset in sorted(start.offsets.items()):
            end_offset = min(
                end_offsets[partition], first_offset + self._settings.enrich_max_offsets_per_trigger
            )
            note = start.notes.get(partition, "")
            if first_offset >= end_offset:
                if note:  # else each search would be followed by another one
                    await self._offsets.commit({partition: first_offset})
                continue
            trial = note.partition(SEPARATOR)[0]
            failed_end = None if trial == self._own_notes.get(partition) else unfinished_trial(note)
            # The trial of one record may have been interrupted by Kafka, or by the end of the process: once more.
            again = failed_end == first_offset + 1 and not was_tried_twice(note)
            self._tried_alone = (partition, first_offset) if again else None
            full_range = OffsetRange(partition, first_offset, end_offset)
            await write_around_poison(full_range, self._try_range, self._blame, failed_end, again=again)

    async def _try_range(self, offset_range: OffsetRange) -> bool:
        """Whether the records of a range have been written."""
        is_single = offset_range.end - offset_range.first == 1
        for trial in range(1, _TRIALS_OF_ONE + 1 if is_single else 2):
            if await self._write(offset_range):
                return True
            if not is_single or trial < _TRIALS_OF_ONE:
                await self._require_spark()
        return is_single and await self._pass_written(offset_range)

    async def _blame(self, offset_range: OffsetRange) -> None:
        """Quarantine a single record, unless Spark fails on any other one, too.

        Raises:
            _PlanOutOfDate: the offset is committed, but the next records need the next plan.
        """
        self._require_leadership()
        await self._require_spark()
        self._require_leadership()
        is_plan_out_of_date = await self._quarantine(offset_range)
        self._quarantined_records += 1
        if is_plan_out_of_date:
            raise _PlanOutOfDate

    async def _write(self, offset_range: OffsetRange) -> bool:
        self._require_leadership()
        note = self._trial_note(offset_range)
        self._own_notes[offset_range.partition] = note
        await self._offsets.commit(
            {offset_range.partition: offset_range.first}, {offset_range.partition: note}
        )
        limit_s = trial_limit_s(offset_range.end - offset_range.first, self._settings.enrich_stall_s)
        try:
            await self._engine.write_range(
                {offset_range.partition: offset_range.first},
                {offset_range.partition: offset_range.end},
                limit_s,
            )
        except SparkExited:
            raise  # the next process reads the range from the metadata of the offset
        except TimeoutError:
            await self._require_kafka()
            logger.warning(
                "range-stalled",
                partition=offset_range.partition,
                first=offset_range.first,
                end=offset_range.end,
            )
            return False
        except Exception as error:  # noqa: BLE001 - Spark raises any error that the record causes
            error_text = str(error)
            pipes_offset = newer_offset(error_text)
            if pipes_offset is not None:
                raise Retryable(f"{NEWER_REVISION}={pipes_offset}") from None
            if is_kafka_failure(error_text) or isinstance(error, OSError):
                raise Retryable(
                    f"the search for a poison record was interrupted: {error_text[:300]}"
                ) from None
            logger.warning(
                "range-failed",
                partition=offset_range.partition,
                first=offset_range.first,
                end=offset_range.end,
                error=error_text[:300],
            )
            return False
        await self._offsets.commit({offset_range.partition: offset_range.end})
        return True

    def _trial_note(self, offset_range: OffsetRange) -> str:
        is_second = self._tried_alone == (offset_range.partition, offset_range.first)
        return trial_note(
            offset_range.end, is_second=is_second and offset_range.end == offset_range.first + 1
        )

    async def _pass_written(self, offset_range: OffsetRange) -> bool:
        """Whether the output of a single record is in Kafka all the same; its offset is committed then."""
        try:
            next_offsets = await skip_written(
                self._settings.kafka,
                self._settings.instance,
                self._topics,
                {offset_range.partition: offset_range.first},
            )
        except (KafkaError, OSError) as error:
            raise Retryable(f"the search for a poison record was interrupted: {error!r}") from None
        if next_offsets[offset_range.partition] < offset_range.end:
            return False
        await self._offsets.commit({offset_range.partition: offset_range.end})
        return True

    def _require_leadership(self) -> None:
        if not self._leading():
            raise Retryable("the search for a poison record was interrupted: this instance does not lead now")

    async def _require_spark(self) -> None:
        """Check that Spark writes another record in the state in which it failed.

        It has the time of a stall: a new leader of a cluster has to wait for executors, for example.
        """
        try:
            await self._engine.check_spark(self._settings.enrich_stall_s)
        except SparkExited:
            raise
        except Exception as error:  # noqa: BLE001 - whatever Spark raises now
            raise Retryable(
                "the search for a poison record was interrupted: Spark fails on any record now:"
                f" {type(error).__name__}: {str(error)[:300]}"
            ) from None

    async def _require_kafka(self) -> None:
        """Check that Kafka answers: without an answer the records could not be written in time."""
        try:
            async with asyncio.timeout(_TRIAL_S):
                await self._offsets.end()
        except (KafkaError, OSError) as error:
            raise Retryable(f"the search for a poison record was interrupted: {error!r}") from None

    async def _quarantine(self, offset_range: OffsetRange) -> bool:
        """Make a dead letter of a single record and commit its offset. Returns what `on_poisoned` did."""
        is_plan_out_of_date = False
        topic_partition = TopicPartition(self._topics.normalized, offset_range.partition)
        consumer = assigned_consumer(
            self._settings.kafka, self._settings.instance, auto_offset_reset="earliest"
        )
        producer = Producer(self._settings.kafka, f"{self._settings.instance}-quarantine")
        try:
            await consumer.start()
            consumer.assign([topic_partition])
            first_offset = (await consumer.beginning_offsets([topic_partition]))[topic_partition]
            consumer.seek(topic_partition, offset_range.first)
            record: Any = None
            detail = "Spark failed on this event again and again, or took too long, and on no other"
            if first_offset < offset_range.end:
                try:
                    record = await consumer.getone(topic_partition)
                except ValueError as error:  # such as a name of a header that is not UTF-8
                    logger.exception(
                        "poison-record-not-parsed",
                        topic=topic_partition.topic,
                        partition=topic_partition.partition,
                        offset=offset_range.first,
                    )
                    record = _UnparsedRecord(offset_range.first)
                    detail += f"; without its data, since the record at offset {record.offset} of"
                    detail += f" {topic_partition.topic}, same partition, cannot be parsed: {error}"
            if record is None or record.offset != offset_range.first:
                logger.error(
                    "poison-record-deleted",
                    topic=topic_partition.topic,
                    partition=topic_partition.partition,
                    offset=offset_range.first,
                )
            else:
                letter_record = dead_letter(
                    record.key,
                    record.value,
                    record.headers,
                    "enrich",
                    Rejected("poisoned", detail),
                    now_us(),
                )
                await producer.start()
                await producer.send_and_wait(
                    self._topics.dead_letter, offset_range.partition, [letter_record]
                )
                logger.error(
                    "record-poisoned",
                    topic=topic_partition.topic,
                    partition=topic_partition.partition,
                    offset=offset_range.first,
                )
                is_plan_out_of_date = self._on_poisoned(record.headers)
        except (KafkaError, OSError) as error:
            raise Retryable(f"a poison record could not be quarantined: {error!r}") from error
        finally:
            await consumer.stop()
            await producer.stop()
        await self._offsets.commit({offset_range.partition: offset_range.end})
        return is_plan_out_of_date
