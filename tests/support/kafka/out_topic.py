"""A topic of a Kafka cluster that the kind `kafka` writes."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from tests.support.connectors.kind_under_test import EventLog
from tests.support.egest.egest_stream import connector_destination, pipe_to

from hifi.delivery.installed_kinds import read_settings
from hifi.delivery.kind import DestinationWriter, WriterContext
from hifi.kafka.admin import partition_counts
from hifi.pipe.model import Pipe
from hifi_infra.kafka.cluster import KafkaCluster


class OutTopic:
    """A topic at the destination and its positions topic."""

    def __init__(self, kafka: str, name: str) -> None:
        self.kafka = kafka
        self.name = name

    def declared(self, **overrides: Any) -> dict[str, Any]:
        settings = {"bootstrap": self.kafka, "topic": self.name, "positions_topic": f"{self.name}-positions"}
        return {
            "name": "d",
            "kind": "kafka",
            "settings": settings | overrides.pop("settings", {}),
            **overrides,
        }

    def pipe(self, **overrides: Any) -> Pipe:
        return pipe_to("flights", self.declared(**overrides))

    def writer(self, **settings: Any) -> DestinationWriter:
        kind, kind_settings = read_settings(connector_destination(self.pipe(settings=settings)))
        return kind.open(kind_settings, WriterContext("s", "flights", "d", 16, 10.0))

    async def configure(self, limit: int) -> None:
        """Set the topic's `max.message.bytes`."""
        configs = {"max.message.bytes": str(limit)}
        admin = AIOKafkaAdminClient(bootstrap_servers=self.kafka)
        await admin.start()
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, self.name, configs)])
        await admin.close()

    async def delete(self, *names: str) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.kafka)
        await admin.start()
        await admin.delete_topics(list(names))
        await admin.close()

    async def create(self) -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=self.kafka)
        await admin.start()
        await admin.create_topics([NewTopic(self.name, 1, 1)])
        await admin.close()

    async def delete_positions(self) -> None:
        await self.delete(f"{self.name}-positions")

    async def records(self, isolation: str = "read_committed") -> list[ConsumerRecord]:
        """All records of the topic, in their order within a partition, once their transactions are decided."""
        options = {"bootstrap_servers": self.kafka, "enable_auto_commit": False}
        consumer = AIOKafkaConsumer(**options, isolation_level=isolation)
        # Kafka acknowledges a commit before it writes the markers: until then `read_committed` ends before the records.
        uncommitted_consumer = AIOKafkaConsumer(**options)
        await consumer.start()
        await uncommitted_consumer.start()
        try:
            count = (await partition_counts(self.kafka, [self.name])).get(self.name, 0)
            tps = [TopicPartition(self.name, number) for number in range(count)]
            consumer.assign(tps)
            end_offsets = await uncommitted_consumer.end_offsets(tps)
            collected: list[ConsumerRecord] = []
            for tp in tps:
                consumer.seek(tp, 0)
            unread_partitions = [tp for tp in tps if end_offsets[tp]]
            while unread_partitions:
                for records in (await consumer.getmany(*unread_partitions, timeout_ms=200)).values():
                    collected += records
                unread_partitions = [
                    tp for tp in unread_partitions if await consumer.position(tp) < end_offsets[tp]
                ]
            return collected
        finally:
            await consumer.stop()
            await uncommitted_consumer.stop()


class KeyedTopic(OutTopic, EventLog):
    """A topic of a cluster that does not answer while it is locked; records need the attribute `subject`."""

    refusal = "no-key"

    def __init__(self, cluster: KafkaCluster, name: str) -> None:
        super().__init__(cluster.bootstrap, name)
        self._cluster = cluster

    def declared(self, **overrides: Any) -> dict[str, Any]:
        return super().declared(
            settings={"key_attribute": "subject"} | overrides.pop("settings", {}), **overrides
        )

    async def history(self) -> list[tuple[str, int]]:
        values = [orjson.loads(record.value) for record in await self.records()]
        return [(data["key"], data["number"]) for data in values]

    @contextlib.asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        self._cluster.pause_broker(1)
        try:
            yield
        finally:
            self._cluster.resume_broker(1)
