"""What the dispatcher makes of fetched records; without Kafka."""

from types import SimpleNamespace
from typing import Any

from aiokafka import TopicPartition

from hifi.kafka.assigned_partition import AssignedPartition
from hifi.kafka.dispatcher import ConsumerOptions, Dispatcher


class FetchedRecords:
    """Replaces the fetcher."""

    def __init__(self) -> None:
        self.offsets: dict[TopicPartition, list[int]] = {}

    @property
    def fetched(self) -> list[TopicPartition]:
        return [*self.offsets]

    def position(self, _: TopicPartition) -> None:
        """It is not known."""

    def take(self, tp: TopicPartition, _: int) -> list[Any]:
        return [
            SimpleNamespace(topic=tp.topic, partition=tp.partition, offset=offset)
            for offset in self.offsets.pop(tp)
        ]


async def test_no_offset_of_a_topic_that_was_created_again_is_committed_any_more() -> None:
    failures: list[BaseException] = []
    tps = [TopicPartition("again", 0), TopicPartition("again", 1), TopicPartition("other", 0)]
    assigned = {tp: AssignedPartition(tp, fail=failures.append) for tp in tps}
    fetcher: Any = FetchedRecords()
    dispatcher = Dispatcher(
        ConsumerOptions(["again", "other"], "g"),
        lambda partition, records: partition.complete_through(records[-1].offset),
        lambda *_: None,  # type: ignore[arg-type]
        assigned,
        failures.append,
        lambda *_: None,
    )
    dispatcher.begin(fetcher)
    for first_offset in (50, 0):
        fetcher.offsets = {tps[0]: [first_offset, first_offset + 1]}
        dispatcher.on_records(fetcher)
    assert "created again" in str(failures[0])
    assert [(partition.void, partition.active) for partition in assigned.values()] == [
        (True, False),
        (True, False),
        (False, True),
    ]
