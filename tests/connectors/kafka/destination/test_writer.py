"""Which events of a batch a writer gives to the lines of a partition. Pure."""

from collections.abc import Sequence
from typing import Any

import pytest

from hifi.delivery.kind import OutboundEvent, WriterContext
from hifi_kafka.declaration import KafkaDestinationSettings
from hifi_kafka.destination.writer import KafkaWriter

LOG = "0a" * 16


def outbound(offset: int, *, partition: int = 0, is_retried: bool = False) -> OutboundEvent:
    return OutboundEvent(b"{}", "application/json", {}, b"k", LOG, partition, offset, 0, is_retried)


class NotedPartition:
    """Notes what is to be written to one line of a partition."""

    def __init__(self, offsets: list[int]) -> None:
        self._offsets = offsets

    async def write(self, events: Sequence[tuple[OutboundEvent, object]]) -> None:
        self._offsets += [event.offset for event, _ in events]


async def test_an_event_that_is_fresh_and_retried_in_one_batch_is_written_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = KafkaDestinationSettings.model_validate({"bootstrap": "127.0.0.1:1", "topic": "t"})
    writer = KafkaWriter(settings, WriterContext("s", "p", "d", 1, 10))
    written: dict[tuple[int, bool], list[int]] = {}

    def partition(_log: str, number: int, *, retried: bool) -> Any:
        return NotedPartition(written.setdefault((number, retried), []))

    monkeypatch.setattr(writer, "_partition", partition)
    event = outbound(1)
    await writer.write(
        [
            event._replace(retried=True),
            event,
            outbound(2),
            outbound(3, is_retried=True),
            outbound(1, partition=1, is_retried=True),
        ]
    )
    assert written == {(0, False): [1, 2], (0, True): [3], (1, True): [1]}
