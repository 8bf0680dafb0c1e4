"""retrier: retry-in.<delay> > waits until each delivery is due > retry-out, at the same partition."""

from hifi.kafka.consumer import Consumer, ConsumerOptions
from hifi.kafka.producer import Producer
from hifi.service import Service, run
from hifi.settings import ServiceSettings
from hifi_retrier.due import turn_s
from hifi_retrier.step import SERVICE, Retrier


async def retrier(service: Service, settings: ServiceSettings) -> None:
    """Bring deliveries back until the service stops."""
    topics = settings.topics
    producer = Producer(settings.kafka, settings.instance)
    bringer = Retrier(topics, producer)
    # What waits is read little by little, so that hours of backlog cost no memory.
    reading = ConsumerOptions(
        [topics.retry_in(tier) for tier in topics.tiers],
        topics.group(SERVICE),
        batch_records=500,
        pending_records=1,
        partition_fetch_bytes=128 * 1024,
        gather_s=turn_s(topics.tiers),
    )
    consumer = Consumer(service, settings, reading, bringer.step, bringer.poisoned)
    if await service.unless_stopped(producer.connect(service.health)):
        service.health.state = "running"
        await consumer.run()
    await producer.stop()


def main() -> None:
    """The program `hifi-retrier`."""
    run(SERVICE, ServiceSettings, retrier)


if __name__ == "__main__":
    main()
