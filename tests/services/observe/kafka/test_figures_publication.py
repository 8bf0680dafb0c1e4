"""What an instance publishes of a partition is that of its ledger, also after another instance had the partition."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from hifi_observe.kafka.observed_partitions import ObservedPartitions
from hifi_observe.kafka.publication import FiguresPublication
from hifi_observe.kafka.publisher import Publisher
from hifi_observe.ledger.closing import ClosingRules
from hifi_observe.ledger.partition_ledger import PartitionLedger
from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.ledger.stage import RAW, EventStage
from hifi_observe.pipes import ObservedPipes


class PipesDouble:
    def limits(self) -> dict[str, Any]:
        return {}

    def with_rollout(self) -> list[str]:
        return []


class PublisherDouble:
    def __init__(self) -> None:
        self.open_minutes_rows: asyncio.Queue[list[dict[str, Any]]] = asyncio.Queue()
        self.published_count = 0
        self.published = asyncio.Condition()

    async def live(self, _partition: int, _figures_json: Any) -> None:
        async with self.published:
            self.published_count += 1
            self.published.notify_all()

    async def open_minutes(self, _partition: int, rows: list[dict[str, Any]]) -> None:
        self.open_minutes_rows.put_nowait(rows)

    async def publishes_again(self) -> None:
        """Wait for the next publication."""
        async with self.published:
            count_before = self.published_count
            await self.published.wait_for(lambda: self.published_count > count_before)


def ledger_with_event(sequence: int) -> PartitionLedger:
    ledger = PartitionLedger(0, ClosingRules())
    pipe_minute = ledger.pipe_minutes["flights", 7] = PipeMinute("flights", 7)
    pipe_minute.show([EventStage(RAW)], "0" * 16, list(range(sequence + 1)))
    return ledger


async def test_the_open_minutes_of_a_partition_that_came_back_are_reported_though_they_changed_as_often() -> (
    None
):
    partitions, publisher = SimpleNamespace(ledgers={0: ledger_with_event(0)}), PublisherDouble()
    publication = FiguresPublication(
        cast(ObservedPipes, PipesDouble()),
        cast(ObservedPartitions, partitions),
        cast(Publisher, publisher),
    )
    async with asyncio.timeout(60):
        task = asyncio.create_task(publication.run(0.001))
        assert [row["in"] for row in await publisher.open_minutes_rows.get()] == [1]
        await publisher.publishes_again()
        partitions.ledgers = {0: ledger_with_event(1)}
        assert [row["in"] for row in await publisher.open_minutes_rows.get()] == [2]
        assert publisher.published_count < 30, "every 30th report has all minutes"
        task.cancel()
