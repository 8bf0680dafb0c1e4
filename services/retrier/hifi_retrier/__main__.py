"""retrier: retry-in.<delay> > waits until each delivery is due > retry-out, same partition."""

import asyncio

from hifi.delivery.destination_follower import DestinationFollower
from hifi.kafka.consumer import Consumer, ConsumerOptions
from hifi.kafka.producer import Producer
from hifi.kafka.topics import Tier
from hifi.runtime.service import Service, run
from hifi_retrier.due import round_interval_s
from hifi_retrier.parked import ParkedDeliveries
from hifi_retrier.retrier import SERVICE, Retrier
from hifi_retrier.settings import RetrierSettings
from hifi_retrier.tiers import CONDITION, load_tiers


async def retrier(service: Service, settings: RetrierSettings) -> None:
    """Bring deliveries back until the service stops."""
    topics = settings.topics
    producer = Producer(settings.kafka, settings.instance)
    destinations = DestinationFollower(settings.kafka, topics, settings.instance)
    parked = ParkedDeliveries(settings.kafka, topics, destinations, producer, settings.retrier_probe_s)
    service.health.block(CONDITION, "they have not been listed yet")

    async def connect() -> dict[str, Tier]:
        """Wait for Kafka."""
        await producer.connect(service.health)
        await destinations.start()
        return await load_tiers(settings.kafka, topics, service.health)

    connecting = asyncio.create_task(connect())
    if await service.unless_stopped(connecting):
        tiers = connecting.result()
        bringer = Retrier(topics, tiers, producer, parked)
        options = ConsumerOptions(
            [*tiers, topics.parked],
            topics.group(SERVICE),
            batch_records=500,
            # Waiting deliveries are read in small steps, so that a backlog of hours needs no memory.
            pending_records=1,
            partition_fetch_bytes=128 * 1024,
            gather_s=round_interval_s(topics.tiers),
        )
        consumer = Consumer(service, settings, options, bringer.handle, bringer.handle_poison)
        service.health.state = "running"
        draining = asyncio.create_task(parked.run(consumer.assigned))
        await consumer.run()
        draining.cancel()
        await asyncio.wait([draining])
    await destinations.stop()
    await producer.stop()


def main() -> None:
    """The program `hifi-retrier`."""
    run(SERVICE, RetrierSettings, retrier)


if __name__ == "__main__":
    main()
