"""egest: enriched and retry-out > one lane per destination > receipts; retries and dead letters for the rest."""

from aiokafka import TopicPartition

from hifi.delivery.destination_follower import DestinationFollower
from hifi.delivery.published_watermarks import PublishedWatermarks
from hifi.kafka.certificate_reports import report_certificates
from hifi.kafka.consumer import Consumer
from hifi.kafka.partition_lease import PartitionLease
from hifi.kafka.producer import Producer
from hifi.kafka.stream_log import StreamLog
from hifi.kafka.topic_check import TopicCheck
from hifi.pipe.registry import PipeRegistry
from hifi.runtime.running import running
from hifi.runtime.service import Service, run
from hifi_egest.dedup.outcome_reader import OutcomeReader
from hifi_egest.delivery.memory_bounds import InFlightBudget
from hifi_egest.intake import DeliveryIntake, consumer_options
from hifi_egest.lanes.lanes import Lanes
from hifi_egest.lanes.resources import LaneResources
from hifi_egest.outcomes.recorder import Outbox, OutcomeRecorder
from hifi_egest.outcomes.records import SERVICE
from hifi_egest.settings import EgestSettings
from hifi_egest.watermark_posts import WatermarkPosts


async def egest(service: Service, settings: EgestSettings) -> None:
    """Deliver events until the service stops."""
    topics, health = settings.topics, service.health
    registry = PipeRegistry(settings.kafka, topics, health, ("destinations",))
    outcome_topics = [topics.receipts, topics.dead_letter, topics.parked, *map(topics.retry_in, topics.tiers)]
    required_topics = [topics.enriched, topics.retry_out, *outcome_topics]
    check = TopicCheck(settings.kafka, required_topics, registry.partition_count, health)
    stream_log = StreamLog(settings.kafka, topics, health)
    destinations = DestinationFollower(settings.kafka, topics, settings.instance)
    producer = Producer(settings.kafka, settings.instance, health=health)
    # Outcomes: receipts, retries and dead letters, written only while this instance is a member of its group.
    lease = PartitionLease(lambda: consumer.member, settings.session_timeout_s)
    outbox = Outbox(producer, lease)
    service.watch(outbox.failed)
    recorder = OutcomeRecorder(topics, outbox, lease)
    # Lanes: one per destination, all within one budget.
    budget = InFlightBudget(settings.egest_in_flight_events, settings.egest_in_flight_bytes)
    resources = LaneResources.of_stream(
        settings, registry, stream_log, destinations, recorder, lease, budget, health
    )
    lanes = Lanes(registry, resources, lambda: len(consumer.assigned) / (2 * (registry.partitions or 1)))
    # Records: read, checked for copies, given to the lanes.
    outcome_reader = OutcomeReader(settings.kafka, settings.instance, topics)
    pipes_wait_s = settings.egest_pipes_wait_s
    intake = DeliveryIntake(
        topics, registry, lanes, recorder, outcome_reader, budget, health, pipes_wait_s, stream_log
    )
    consumer = Consumer(service, settings, consumer_options(settings), intake.handle, intake.poisoned)
    # Beside the events: the watermark, for destinations that ask for it.
    watermarks = PublishedWatermarks(settings.kafka, settings.instance, topics)
    first_partition = TopicPartition(topics.enriched, 0)
    posts = WatermarkPosts(
        settings.stream,
        lanes,
        watermarks,
        lease,
        lambda: first_partition in consumer.assigned,
        stream_log.identity,
        health,
    )
    clients = registry, check, stream_log, destinations, lanes, outcome_reader, producer, watermarks, posts
    async with running(service, *clients):
        health.state = "running"
        await consumer.run()


def main() -> None:
    """The program `hifi-egest`."""
    run(SERVICE, EgestSettings, egest, report_certificates)


if __name__ == "__main__":
    main()
