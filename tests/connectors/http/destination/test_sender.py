"""A request is sent only while all its partitions certainly belong to this instance."""

from typing import Any

import pytest
from aiokafka import ConsumerRecord, TopicPartition
from tests.support.egest.egest_stream import attributes, pipe
from tests.support.egest.fake_destination import OK, ReceivedRequest, destination

from hifi.delivery.sender import SenderContext, SentRequest
from hifi.kafka.consumer import AssignedPartition
from hifi.kafka.partition_lease import PartitionLease
from hifi.runtime import metrics
from hifi.runtime.health import Health
from hifi_egest.delivery.delivery import Delivery, EventRecord, OutboundRequest, SourcePartition
from hifi_egest.delivery.memory_bounds import InFlightBudget
from hifi_http.declaration import HttpDestination
from hifi_http.destination.sender import RequestSender


class Member:
    """Of the group, until its heartbeats stop."""

    last_heartbeat_monotonic_s = float("-inf")


@pytest.mark.parametrize("lost", ["lease", "partition"])
async def test_nothing_is_sent_when_it_may_not_be_any_more(lost: str) -> None:
    assigned_partition = AssignedPartition(TopicPartition("enriched", 0))
    member = Member()
    record: Any = ConsumerRecord("enriched", 0, 0, 0, 0, b"k", b"{}", None, 0, 2, tuple(attributes(0)))
    partition = SourcePartition(assigned_partition, "enriched", InFlightBudget(10, 10**6))
    delivery = Delivery(EventRecord(record, partition, b"", [], "flights", b"x:1", 0, 5), b"d")
    request = OutboundRequest([delivery], [], PartitionLease(lambda: member, 10.0))
    health = Health("egest", "i")
    context = SenderContext("flights", health, 60.0, lambda: None)
    async with destination() as receiver:
        declared_pipe = pipe(receiver.url).destinations[0]
        assert isinstance(declared_pipe, HttpDestination)
        sender = RequestSender(declared_pipe, context)
        if lost == "partition":
            member.last_heartbeat_monotonic_s = float("inf")
            assigned_partition.revoke()
        assert await sender.send(request) is None
        assert (receiver.requests, delivery.attempts) == ([], 0)
        member.last_heartbeat_monotonic_s = float("inf")
        assigned_partition.active = True
        sent_request = await sender.send(request)
        assert isinstance(sent_request, SentRequest)
        assert (sent_request.attempt.status, len(receiver.requests), delivery.attempts) == (200, 1, 1)
        await sender.stop()


async def test_stray_bytes_are_counted_and_shown_until_the_destination_is_declared_anew() -> None:
    assigned_partition = AssignedPartition(TopicPartition("enriched", 0))
    member = Member()
    member.last_heartbeat_monotonic_s = float("inf")
    partition = SourcePartition(assigned_partition, "enriched", InFlightBudget(10, 10**6))
    health = Health("egest", "i")
    context = SenderContext("flights", health, 60.0, lambda: None)

    async def answer_twice(_: ReceivedRequest) -> bytes:
        return OK + OK

    async with destination(answer_twice) as receiver:
        declared_pipe = pipe(receiver.url).destinations[0]
        assert isinstance(declared_pipe, HttpDestination)
        sender = RequestSender(declared_pipe, context)
        for offset in range(3):
            record: Any = ConsumerRecord(
                "enriched", 0, offset, 0, 0, b"k", b"{}", None, 0, 2, tuple(attributes(offset))
            )
            delivery = Delivery(EventRecord(record, partition, b"", [], "flights", b"x:1", 0, 5), b"d")
            sent_request = await sender.send(
                OutboundRequest([delivery], [], PartitionLease(lambda: member, 10.0))
            )
            assert isinstance(sent_request, SentRequest)
        assert receiver.connections == 3
        assert metrics.STRAY_ANSWERS.labels("flights", declared_pipe.name)._value.get() == 3
        assert "connection of its own" in health.warnings[f"stray bytes from flights/{declared_pipe.name}"]
        await sender.stop()
    assert health.warnings == {}
