"""Of two colours one reads a table and a folder, and the other goes on where it stopped, also when it was killed."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
from tests.support.collect.collected_stream import CollectedStream, collected_stream, fields, until
from tests.support.collect.polled_reader import RawEnd
from tests.support.objects.polled_objects import PolledFolder
from tests.support.postgres.polled_table import PolledTable
from tests.support.stream_process import PARTITIONS, readyz

from hifi.delivery.colours import Colour, Colours, ColourState
from hifi.kafka.admin import create_topics
from hifi.kafka.producer import Producer
from hifi.kafka.topics import ControlTopics
from hifi.pipe.registry import publish, stream_record
from hifi.pipe.revision import pipe_record
from hifi.pipe.sources.kind import MOST_EVENTS
from hifi_infra.kafka.cluster import KafkaCluster

pytestmark = pytest.mark.timeout(400)
ROWS = 4 * MOST_EVENTS
BACKFILL = {"rate": f"{MOST_EVENTS}/s", "after": "0s"}
"""Slow enough that a shift and a kill meet the sources while they are read."""


class TwoColours:
    """Blue on a Kafka of its own, green on the one that also has the control plane. Table and folder are pipes."""

    def __init__(self, blue: CollectedStream, green: CollectedStream) -> None:
        self.blue, self.green = blue, green
        self.control = ControlTopics(f"{green.topics.stream}-control")

    async def shift(self, name: str) -> None:
        """Give all requests to a colour."""
        shares = {
            colour: Colour(10_000, ColourState.ACTIVE, (), "")
            if colour == name
            else Colour(0, ColourState.IDLE, (), "")
            for colour in ("blue", "green")
        }
        producer = Producer(self.green.kafka, "test")
        await producer.start()
        await producer.send_and_wait(self.control.colours, 0, [Colours(shares, (), 1, "test").record()])
        await producer.stop()

    async def collect(self, stream: CollectedStream, name: str) -> int:
        """Start collect of a colour; returns the port of its health pages."""
        _, port = await stream.start(
            "collect",
            colours=self.control.control,
            colour=name,
            control_kafka=self.green.kafka,
            session_timeout_s=6,
        )
        return port

    async def passed(self) -> dict[str, Counter[str]]:
        """Colour to the number of passes of each event through its normalize."""
        return {
            name: Counter(
                fields(record)["ce_id"].decode() for record in await stream.all(stream.topics.normalized)
            )
            for name, stream in (("blue", self.blue), ("green", self.green))
        }

    async def numbers(self) -> set[tuple[str, int]]:
        """The field by which a pipe numbers its rows, and the number, of the rows that have passed."""
        pairs = set()
        for stream in (self.blue, self.green):
            for record in await stream.all(stream.topics.normalized):
                row = orjson.loads(record.value)
                pairs.add(("id", row["id"]) if "id" in row else ("n", row["n"]))
        return pairs

    async def until_passed(self, rows: range) -> None:
        """Wait until these rows of the table and of the folder have passed."""
        expected = {(name, number) for name in ("id", "n") for number in rows}
        topic = self.blue.topics.normalized
        async with RawEnd(self.blue, topic) as blue, RawEnd(self.green, topic) as green, asyncio.timeout(120):
            while (
                await blue.count() + await green.count() < len(expected)
                or not expected <= await self.numbers()
            ):
                await asyncio.sleep(0.1)


@contextlib.asynccontextmanager
async def two_colours(
    kafka: str, log: Path, data: Path, table: PolledTable, folder: PolledFolder
) -> AsyncIterator[TwoColours]:
    cluster = KafkaCluster(data, heap_mb=256)
    await cluster.start()
    try:
        async with collected_stream(kafka, log) as green:
            blue = CollectedStream(
                cluster.bootstrap, log, green.topics, green.source, green.producer, green.processes
            )
            await create_topics(blue.kafka, blue.topics, partitions=PARTITIONS, replication=1)
            await publish(blue.kafka, blue.topics, [stream_record(PARTITIONS)])
            colours = TwoColours(blue, green)
            await create_topics(kafka, colours.control, partitions=1, replication=1)
            files = folder.pipe(backfill=BACKFILL).model_copy(update={"pipe": "files"})
            pipes = (table.pipe(backfill=BACKFILL), files)
            for stream in (blue, green):
                await publish(stream.kafka, stream.topics, [pipe_record(pipe) for pipe in pipes])
            yield colours
    finally:
        await cluster.stop()


def add(table: PolledTable, folder: PolledFolder, numbers: range) -> None:
    """Add rows to the table, a hundred of each time so that batches end between equal values, and an object."""
    table.add(numbers, "statement_timestamp() + (n / 100) * interval '1 us'")
    lines = b"".join(orjson.dumps({"n": number}, option=orjson.OPT_APPEND_NEWLINE) for number in numbers)
    folder.put(f"{numbers.start}.ndjson", lines)


# Faster: test_each_row_of_a_folder_passes_once_although_its_reader_is_killed, and
# test_only_the_colour_with_the_larger_share_reads_and_the_other_one_goes_on_without_a_copy
@pytest.mark.more
async def test_after_a_shift_the_other_colour_goes_on_and_after_a_kill_it_repeats_at_most_one_batch_of_each_source(
    kafka: str, log: Path, tmp_path: Path, table: PolledTable, folder: PolledFolder
) -> None:
    async with two_colours(kafka, log, tmp_path / "blue", table, folder) as colours:
        blue, green = colours.blue, colours.green
        await colours.shift("blue")
        ports = {
            name: await colours.collect(stream, name) for name, stream in (("blue", blue), ("green", green))
        }
        killed_process = green.processes[0]
        for stream in (blue, green):
            await stream.start("normalize")
        await until(lambda: "not read here but by blue" in str(readyz(ports["green"])[1]))

        async with RawEnd(blue) as blue_end, RawEnd(green) as green_end:
            add(table, folder, range(ROWS))
            await blue_end.reached(ROWS // 3)
            await colours.shift("green")
            await green_end.reached(1)
            await colours.until_passed(range(ROWS))
            pass_counts = await colours.passed()
            assert set((pass_counts["blue"] + pass_counts["green"]).values()) == {1}, (
                "a shift repeats nothing"
            )

            await colours.shift("blue")
            await until(lambda: "not read here but by blue" in str(readyz(ports["green"])[1]))
            add(table, folder, range(ROWS, 2 * ROWS))
            await blue_end.reached(await blue_end.count() + ROWS // 3)
            await blue.kill(killed_process)
            await colours.shift("green")
            await colours.until_passed(range(2 * ROWS))

        pass_counts = await colours.passed()
        assert all(set(counts.values()) == {1} for counts in pass_counts.values()), (
            "a colour passes nothing twice"
        )
        repeated_names = pass_counts["blue"] & pass_counts["green"]
        assert len(pass_counts["blue"] + pass_counts["green"]) == 4 * ROWS, "nothing else was read"
        for source in ("table", "folder"):
            repeated_of_source = [
                name for name in repeated_names if (table.name in name) == (source == "table")
            ]
            assert len(repeated_of_source) <= MOST_EVENTS, f"more than one batch of the {source} was repeated"
        log_text = log.read_text()
        assert log_text.count("source-taken-over") == 2 * 4
