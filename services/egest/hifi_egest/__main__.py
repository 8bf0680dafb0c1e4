"""egest: enriched and retry-out > one lane per destination > receipts; retries and dead letters for the rest."""

import asyncio
from typing import Final

from hifi.delivery.destination_follower import DestinationFollower
from hifi.delivery.destination_state import DestinationName, StateChange, state_record
from hifi.kafka.consumer import Consumer, ConsumerOptions
from hifi.kafka.producer import Producer
from hifi.kafka.stream_log import StreamLog
from hifi.kafka.topic_check import TopicCheck
from hifi.pipe.registry import PipeRegistry
from hifi.runtime.running import running
from hifi.runtime.service import Service, run
from hifi_egest.dedup.outcome_reader import OutcomeReader
from hifi_egest.delivery.in_flight_budget import InFlightBudget
from hifi_egest.delivery.lease import PartitionLease
from hifi_egest.intake import DeliveryIntake
from hifi_egest.lanes.lanes import Lanes
from hifi_egest.lanes.resources import LaneResources
from hifi_egest.outcomes.recorder import Outbox, OutcomeRecorder
from hifi_egest.outcomes.records import SERVICE
from hifi_egest.settings import EgestSettings

BATCH_RECORDS: Final = 100
"""Records that one turn of the event loop gives to the lanes, about 1 ms of work."""


async def egest(service: Service, settings: EgestSettings) -> None:
    """Deliver events until the service stops."""
    topics, health = settings.topics, service.health
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    service.watch(failed)
    registry = PipeRegistry(settings.kafka, topics, health)
    outcomes = [topics.receipts, topics.dead_letter, topics.parked, *map(topics.retry_in, topics.tiers)]
    used = [topics.enriched, topics.retry_out, *outcomes]
    stream_log = StreamLog(settings.kafka, topics, health)
    check = TopicCheck(settings.kafka, used, registry.partition_count, health)
    producer = Producer(settings.kafka, settings.instance, health=health)
    # Outcomes: receipts, retries and dead letters, written only while this instance is a member of its group.
    lease = PartitionLease(lambda: consumer.member, settings.session_timeout_s)
    outbox = Outbox(producer, failed)
    recorder = OutcomeRecorder(topics, outbox, lease)
    # Lanes: one per destination, all within one budget.
    budget = InFlightBudget(settings.egest_in_flight_events, settings.egest_in_flight_bytes)
    destinations = DestinationFollower(settings.kafka, topics, settings.instance)

    def publish_state(name: DestinationName, change: StateChange) -> None:
        """Write the new state of a destination's circuit breaker or parking for observe."""
        outbox.put(topics.destinations, 0, [state_record(name, change)], lambda: None)

    resources = LaneResources(
        settings,
        topics.tiers,
        recorder,
        lease,
        budget,
        health,
        destinations.states,
        publish_state,
        lambda: registry.coloured,
        stream_log.identity,
    )
    lanes = Lanes(registry, resources, lambda: len(consumer.assigned) / (2 * (registry.partitions or 1)))
    # Records: read, checked for copies, given to the lanes.
    reader = OutcomeReader(settings.kafka, topics)
    intake = DeliveryIntake(
        topics,
        registry,
        lanes,
        recorder,
        reader,
        budget,
        health,
        settings.egest_pipes_wait_s,
        stream_log.read_anew,
    )
    options = ConsumerOptions(
        [topics.enriched, topics.retry_out],
        topics.group(SERVICE),
        batch_records=BATCH_RECORDS,
        pending_records=settings.egest_pending_records,
        partition_fetch_bytes=settings.egest_fetch_bytes,
    )
    consumer = Consumer(service, settings, options, intake.handle, intake.poisoned)
    async with running(service, registry, check, stream_log, destinations, lanes, reader, producer):
        health.state = "running"
        await consumer.run()


def main() -> None:
    """The program `hifi-egest`."""
    run(SERVICE, EgestSettings, egest)


if __name__ == "__main__":
    main()
