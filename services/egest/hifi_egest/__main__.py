"""egest: enriched and retry-out > a lane for each destination > receipts, and retry-in or dead letters for the rest."""

import asyncio
import ssl

from hifi.health import Health
from hifi.kafka.admin import matching_partitions
from hifi.kafka.consumer import Consumer, ConsumerOptions
from hifi.kafka.producer import Producer
from hifi.pipe.registry import PipeRegistry
from hifi.service import Service, run
from hifi_egest.dedup.takeover import Outcomes
from hifi_egest.delivery.lease import Lease
from hifi_egest.delivery.partition import Held
from hifi_egest.intake import Intake
from hifi_egest.lanes.lane import Tools
from hifi_egest.lanes.lanes import Lanes
from hifi_egest.receipts.outbox import Outbox
from hifi_egest.receipts.outcome_recorder import SERVICE, Settler
from hifi_egest.settings import EgestSettings


async def egest(service: Service, settings: EgestSettings) -> None:
    """Deliver events until the service stops."""
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
    lanes = Lanes(registry, tools, lambda: len(consumer.assigned) / (2 * (registry.partitions or 1)))
    intake = Intake(
        topics, registry, lanes, settler, outbox, outcomes, held, service.health, settings.pipes_wait_s
    )
    reading = ConsumerOptions(
        [topics.enriched, topics.retry_out],
        topics.group(SERVICE),
        pending_records=settings.pending_records,
        partition_fetch_bytes=settings.fetch_bytes,
    )
    consumer = Consumer(service, settings, reading, intake.step, intake.poisoned)
    if await service.unless_stopped(connect(settings, registry, producer, service.health)):
        await lanes.start()
        outcomes.start()
        service.health.state = "running"
        failed.add_done_callback(lambda _: service.stop())
        await consumer.run()
    await producer.stop()
    await outcomes.stop()
    await lanes.stop()
    await registry.stop()
    if failed.done():
        failed.result()


async def connect(
    settings: EgestSettings, registry: PipeRegistry, producer: Producer, health: Health
) -> None:
    """Return when pipes, producer and topics are there, however long Kafka stays away."""
    await asyncio.gather(registry.start(), producer.connect(health))
    topics = settings.topics
    assert registry.partitions is not None
    used = [topics.enriched, topics.retry_out, topics.receipts, topics.dead_letter]
    used += [topics.retry_in(tier) for tier in topics.tiers]
    await matching_partitions(settings.kafka, used, registry.partitions, health)


def main() -> None:
    """The program `hifi-egest`."""
    run(SERVICE, EgestSettings, egest)


if __name__ == "__main__":
    main()
