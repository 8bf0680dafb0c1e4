"""retrier: retry-in.<delay>, parked > waits until each is due, or its destination resumed > retry-out, dead-letter."""

from hifi.delivery.destination_follower import DestinationFollower
from hifi.kafka.certificate_reports import report_certificates
from hifi.kafka.consumer import Consumer, ConsumerOptions
from hifi.kafka.partition_lease import PartitionLease
from hifi.kafka.producer import Producer
from hifi.runtime.running import running
from hifi.runtime.service import Service, run
from hifi_retrier.due import round_interval_s
from hifi_retrier.parked import ParkedDeliveries
from hifi_retrier.retrier import SERVICE, Retrier
from hifi_retrier.settings import RetrierSettings
from hifi_retrier.tiers import RetryTiers
from hifi_retrier.topic_generations import TopicGenerations


async def retrier(service: Service, settings: RetrierSettings) -> None:
    """Bring deliveries back until the service stops."""
    topics, health = settings.topics, service.health
    producer = Producer(settings.kafka, settings.instance, health=health)
    destinations = DestinationFollower(settings.kafka, topics, settings.instance)
    tiers = RetryTiers(settings.kafka, topics, health)
    lease = PartitionLease(lambda: consumer.member, settings.session_timeout_s)
    parked = ParkedDeliveries(
        settings.kafka, settings.instance, topics, destinations, producer, lease, settings.retrier_probe_s
    )
    async with running(service, producer, destinations, tiers):
        handlers = Retrier(topics, tiers.by_topic, producer, parked, TopicGenerations(settings.kafka))
        options = ConsumerOptions(
            [*tiers.by_topic, topics.parked],
            topics.group(SERVICE),
            batch_records=500,
            # Waiting deliveries are read in small steps, so that a backlog of hours needs no memory.
            pending_records=1,
            partition_fetch_bytes=128 * 1024,
            gather_s=round_interval_s(topics.tiers),
        )
        consumer = Consumer(service, settings, options, handlers.handle, handlers.handle_poison)
        health.state = "running"
        async with running(service, background_work=[lambda: parked.run(consumer.assigned)]):
            await consumer.run()


def main() -> None:
    """The program `hifi-retrier`."""
    run(SERVICE, RetrierSettings, retrier, report_certificates)


if __name__ == "__main__":
    main()
