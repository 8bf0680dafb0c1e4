"""Egest: reads `enriched` and `retry-out`, sends each delivery to its destination, puts every outcome on record."""

import asyncio
import contextlib
import ssl

from aiokafka.errors import KafkaError

from hifi.kafka.consumer import Consumer, Reading
from hifi.kafka.producer import Producer
from hifi.pipe.registry import PipeRegistry
from hifi.service import Service, run
from hifi_egest.intake import Intake
from hifi_egest.lane import Tools
from hifi_egest.lanes import Lanes
from hifi_egest.lease import Lease
from hifi_egest.outbox import Outbox
from hifi_egest.partition import Held
from hifi_egest.settings import EgestSettings
from hifi_egest.settle import Settler
from hifi_egest.takeover import Outcomes


async def egest(service: Service, settings: EgestSettings) -> None:
    """Run until the service stops."""
    topics = settings.topics
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    registry = PipeRegistry(settings.kafka, topics, service.health)
    producer = Producer(settings.kafka, settings.instance)
    outcomes = Outcomes(settings.kafka, topics)
    held = Held(settings.held_events, settings.held_bytes)
    outbox = Outbox(producer, failed)
    lease = Lease(lambda: consumer.member, settings.session_timeout_s)
    settler = Settler(topics, outbox, lease)
    tools = Tools(settings, topics.tiers, settler, lease, held, service.health, ssl.create_default_context())
    lanes = Lanes(registry, tools, lambda: len(consumer.works) / (2 * (registry.partitions or 1)))
    intake = Intake(topics, registry, lanes, settler, outbox, outcomes, held, settings.pipes_wait_s)
    reading = Reading(
        [topics.enriched, topics.retry_out],
        topics.group("egest"),
        pending_records=settings.pending_records,
        partition_fetch_bytes=settings.fetch_bytes,
    )
    consumer = Consumer(service, settings, reading, intake.step, intake.poisoned)

    await registry.start()
    with contextlib.suppress(KafkaError, OSError):  # it connects by itself as soon as Kafka answers
        await producer.start()
    await lanes.start()
    outcomes.start()
    reader = asyncio.create_task(consumer.run())
    await asyncio.wait({reader, failed}, return_when=asyncio.FIRST_COMPLETED)
    service.stop()
    await reader
    await producer.stop()
    await outcomes.stop()
    await lanes.stop()
    await registry.stop()
    if failed.done():
        failed.result()


def main() -> None:
    """The command `hifi-egest`."""
    run("egest", EgestSettings, egest)


if __name__ == "__main__":
    main()
