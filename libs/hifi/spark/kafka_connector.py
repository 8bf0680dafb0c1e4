"""Options of Spark's Kafka connector: how every query of hifi reads topics and writes records."""

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql import DataFrame

from hifi.kafka.security import java_client_options
from hifi.kafka.settings import ServiceSettings
from hifi.kafka.topics import Topics

PartitionOffsets = Mapping[int, int]
"""Partition to the offset of the next record."""


def write_records(records: DataFrame, settings: ServiceSettings) -> None:
    """Write a bounded DataFrame of records (key, value, headers, topic, partition) to Kafka."""
    records.write.format("kafka").options(**sink_options(settings)).save()


def source_options(settings: ServiceSettings, topic: str, start: PartitionOffsets) -> dict[str, str]:
    """Options of Spark's Kafka source."""
    return {
        **_connection_options(settings),
        # Spark makes up the rest of the group id; the prefix is what an ACL can name.
        "groupIdPrefix": Topics(settings.stream).spark_group_prefix,
        "assign": json.dumps({topic: sorted(start)}),
        "startingOffsets": offsets_json(topic, start),
        "includeHeaders": "true",
        # Records deleted by retention fail the query; the supervisor then logs and counts which ones are lost.
        "failOnDataLoss": "true",
    }


_NEVER_MS: Final = str(2**31 - 1)
"""An expired batch leaves a gap: later batches of its partition are sent, and egest takes it for a copy."""


def sink_options(settings: ServiceSettings) -> dict[str, str]:
    """Options of Spark's Kafka sink."""
    return {
        **_connection_options(settings),
        "kafka.acks": "all",
        "kafka.enable.idempotence": "true",
        "kafka.linger.ms": "5",
        "kafka.batch.size": "131072",
        "kafka.compression.type": "lz4",
        "kafka.max.request.size": str(8 * 1024 * 1024),
        "kafka.delivery.timeout.ms": _NEVER_MS,
        "kafka.request.timeout.ms": "15000",
        "kafka.max.block.ms": "30000",
    }


def _connection_options(settings: ServiceSettings) -> dict[str, str]:
    return {f"kafka.{name}": value for name, value in java_client_options(settings.kafka).items()}


def offsets_json(topic: str, offsets: PartitionOffsets) -> str:
    """Offsets in the format of the Kafka source's options."""
    return json.dumps({topic: {str(partition): offset for partition, offset in sorted(offsets.items())}})
