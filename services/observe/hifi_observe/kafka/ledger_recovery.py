"""Restore the ledger of a partition number from the topic `minutes`."""

from typing import Any

import orjson
from aiokafka import ConsumerRecord, TopicPartition

from hifi.kafka.clients import topic_consumer
from hifi.kafka.settings import ServiceSettings
from hifi.kafka.topic_reader import offset_ranges, read_ranges
from hifi.kafka.topics import Topics
from hifi.runtime import log
from hifi_observe.ledger.closing import ClosingRules
from hifi_observe.ledger.partition_ledger import PartitionLedger
from hifi_observe.minutes import record_keys
from hifi_observe.minutes.merged_minute import read_pipe_minute
from hifi_observe.minutes.record_checks import RESTART

logger = log.get(__name__)


async def load_ledger(
    settings: ServiceSettings, topics: Topics, partitions: int, rules: ClosingRules, partition: int
) -> PartitionLedger:
    """The ledger as its last owner published it; an empty one if nothing was published.

    Args:
        settings: address of Kafka and instance name.
        topics: of the stream.
        partitions: of the stream, and so of the topic `minutes`.
        rules: when minutes close.
        partition: partition number of the ledger.

    Raises:
        aiokafka.errors.KafkaError: Kafka did not answer.
    """
    minute_values: dict[bytes, bytes | None] = {}
    marker: dict[str, Any] | None = None
    marker_key = record_keys.closed(partition)
    key_suffix = f"/{partition}".encode()
    async with topic_consumer(settings.kafka, settings.instance) as consumer:
        tps = [TopicPartition(topics.minutes, number) for number in range(partitions)]
        async for records in read_ranges(consumer, await offset_ranges(consumer, tps)):
            for record in records:
                if record.key == marker_key and record.value:
                    marker = _newer(marker, record)
                elif record.key and record.key.startswith(b"part/") and record.key.endswith(key_suffix):
                    minute_values[record.key] = record.value
    pipe_minutes = []
    for key, value in minute_values.items():
        try:
            if value:
                pipe_minutes.append(read_pipe_minute(value))
        except ValueError as error:
            logger.error("record-unreadable", topic=topics.minutes, key=repr(key), error=repr(error))  # noqa: TRY400
    logger.info("ledger-loaded", partition=partition, minutes=len(pipe_minutes), resumed=marker is not None)
    if marker is None:
        marker = {"minute": -1, "through": {}, "restart": {}}
    return PartitionLedger.resume(partition, rules, marker, pipe_minutes)


def _newer(marker: dict[str, Any] | None, record: ConsumerRecord) -> dict[str, Any] | None:
    """The newer of a marker and the one in a record, which another program may have written."""
    try:
        read_marker: dict[str, Any] = orjson.loads(record.value)
        RESTART.validate_python(read_marker)
    except ValueError as error:
        logger.error("record-unreadable", topic=record.topic, offset=record.offset, error=repr(error))  # noqa: TRY400
        return marker
    return read_marker if marker is None or read_marker["minute"] >= marker["minute"] else marker
