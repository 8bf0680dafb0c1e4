"""Each row of a table passes once, whatever is killed, and none is taken for a copy of another."""

import asyncio
import signal
from pathlib import Path

import orjson
import pytest
from tests.support.collect.collected_stream import collected_stream, fields, until
from tests.support.collect.polled_reader import RawEnd, assert_each_once, field, take_reader, written
from tests.support.postgres.polled_table import PolledTable
from tests.support.stream_process import readyz

from hifi.pipe.sources.kind import MOST_EVENTS

pytestmark = pytest.mark.timeout(400)
ROWS = 24_000


async def test_each_row_passes_once_although_its_reader_is_killed_or_frozen_and_rows_change_meanwhile(
    kafka: str, log: Path, table: PolledTable
) -> None:
    async with collected_stream(kafka, log) as stream, RawEnd(stream) as raw_end:
        topics = stream.topics
        await stream.publish(table.pipe())
        starts = (stream.start("collect", session_timeout_s=6) for _ in range(3))
        instances = list(await asyncio.gather(*starts))

        def add_rows(numbers: range) -> None:
            """A hundred rows of each time, so that batches end between rows of equal value."""
            table.add(numbers, "statement_timestamp() + (n / 100) * interval '1 us'")

        def change_rows() -> None:
            """Rows of the batch that was cut off move to a later time, and others go away."""
            table.execute("UPDATE {} SET name = name || 'u', updated = clock_timestamp() WHERE id % 7 = 0")
            table.execute("DELETE FROM {} WHERE id % 501 = 0")

        add_rows(range(1, 2))
        await raw_end.reached(1)
        killed_reader, _ = await take_reader(instances)
        add_rows(range(2, ROWS // 2))
        await raw_end.reached(ROWS // 8)
        await stream.kill(killed_reader)
        change_rows()
        await until(lambda: any(written(admin) for _, admin in instances))
        frozen, _ = await take_reader(instances)
        add_rows(range(ROWS // 2, ROWS))
        await raw_end.reached(await raw_end.count() + ROWS // 8)
        frozen.send_signal(signal.SIGSTOP)
        change_rows()
        await until(lambda: any(written(admin) for _, admin in instances))
        frozen.send_signal(signal.SIGCONT)  # in the middle of whatever it did

        await stream.start("normalize")
        last_rows = set(table.rows().values())
        normalized_records = await stream.read(
            topics.normalized, lambda records: last_rows <= set(field(records, "name"))
        )
        await assert_each_once(stream, normalized_records)
        assert log.read_text().count("source-taken-over") >= 3


@pytest.mark.more
async def test_a_reader_that_has_to_end_completes_its_batch_however_low_the_rate_is_and_no_row_is_read_again(
    kafka: str, log: Path, table: PolledTable
) -> None:
    rows = MOST_EVENTS + 400
    async with collected_stream(kafka, log) as stream, RawEnd(stream) as raw_end:
        table.add(range(rows))
        await stream.publish(table.pipe(backfill={"rate": "4/s", "after": "0s"}))
        collect_process, _ = await stream.start("collect")
        await raw_end.reached(1)
        collect_process.terminate()
        await asyncio.to_thread(collect_process.wait)
        assert await raw_end.count() == MOST_EVENTS
        await stream.publish(table.pipe())
        await stream.start("collect")
        await raw_end.reached(rows)
        assert sorted(field(await stream.all(stream.topics.raw), "id")) == [*range(rows)]


async def test_a_row_of_a_transaction_that_commits_late_is_not_passed_over(
    kafka: str, log: Path, table: PolledTable
) -> None:
    async with collected_stream(kafka, log) as stream:
        await stream.publish(table.pipe(column="id", key=[], settle="0s"))
        late_connection = table.connect(autocommit=False)
        table.execute("INSERT INTO {} (name) VALUES ('late')", late_connection)
        table.execute("INSERT INTO {} (name) VALUES ('early')")
        _, admin = await stream.start("collect")
        await until(lambda: b"source-taken-over" in log.read_bytes())
        other_connection = table.connect()
        waiting_query = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT max(s.%'"
        await until(lambda: table.execute(waiting_query, other_connection).fetchone() == (1,))
        assert await stream.all(stream.topics.raw) == []
        assert readyz(admin)[0] == 200
        late_connection.commit()
        raw = await stream.read(stream.topics.raw, lambda records: len(records) == 2)
        assert sorted(field(raw, "name")) == ["early", "late"]
        late_connection.close()
        other_connection.close()


async def test_rows_become_events_and_one_that_is_too_large_a_dead_letter(
    kafka: str, log: Path, table: PolledTable
) -> None:
    async with collected_stream(kafka, log) as stream:
        table.add(range(1, 3), "'2026-01-02 03:04:05.678901+00'")
        table.execute(
            "INSERT INTO {} VALUES (3, repeat('x', 2000), 1, '2026-01-03'), (4, 'future', 1, '2999-01-01')"
        )
        await stream.publish(
            table.pipe(query=f"SELECT *, 'a%' AS mark FROM {table.name}", partition_key="name", type="order")
        )
        await stream.start("normalize")
        await stream.start("collect", collect_max_event_bytes=1024)
        normalized_records = await stream.read(stream.topics.normalized, lambda records: len(records) == 2)
        (dead_letter,) = await stream.read(stream.topics.dead_letter, lambda records: len(records) == 1)
        assert fields(dead_letter)["hifi_reason"] == b"too-large"
        first_record = next(record for record in normalized_records if record.key == b"n1")
        first_fields = fields(first_record)
        assert first_fields["ce_time"] == b"2026-01-02T03:04:05.678901Z"
        assert first_fields["ce_type"] == b"order"
        assert first_fields["ce_id"].endswith(b"/2026-01-02T03:04:05.678901Z/1")
        assert orjson.loads(first_record.value) == {
            "id": 1,
            "name": "n1",
            "price": "1.0000",
            "updated": "2026-01-02T03:04:05.678901+00:00",
            "mark": "a%",
        }
        table.add(range(5, 6), "'2026-01-04'")
        await stream.read(
            stream.topics.normalized, lambda records: sorted(field(records, "name")) == ["n1", "n2", "n5"]
        )


async def test_a_column_that_was_renamed_is_told_and_reading_goes_on_when_it_is_back(
    kafka: str, log: Path, table: PolledTable
) -> None:
    async with collected_stream(kafka, log) as stream:
        table.add(range(1, 3))
        await stream.publish(table.pipe())
        _, admin = await stream.start("collect", collect_retry_s=0.2)
        await stream.read(stream.topics.raw, lambda records: len(records) == 2)
        table.execute("ALTER TABLE {} RENAME COLUMN updated TO changed")
        await until(lambda: "updated" in readyz(admin)[1]["warnings"].get("source of orders: settings", ""))
        assert readyz(admin)[0] == 200
        table.execute("ALTER TABLE {} RENAME COLUMN changed TO updated")
        table.execute("ALTER TABLE {} RENAME COLUMN price TO cost")
        table.add(range(3, 4))
        raw = await stream.read(stream.topics.raw, lambda records: len(records) == 3)
        assert sorted("cost" in orjson.loads(record.value) for record in raw) == [False, False, True]
        await until(lambda: readyz(admin)[1]["warnings"] == {})


async def test_rows_of_equal_value_need_a_key(kafka: str, log: Path, table: PolledTable) -> None:
    async with collected_stream(kafka, log) as stream:
        table.add(range(1, 4), "'2026-01-01'")
        await stream.publish(table.pipe(key=[]))
        _, admin = await stream.start("collect")
        await until(lambda: "several rows" in str(readyz(admin)[1]["warnings"]))
        assert await stream.all(stream.topics.raw) == []


@pytest.mark.more
async def test_a_paused_pipe_goes_on_where_it_was(kafka: str, log: Path, table: PolledTable) -> None:
    async with collected_stream(kafka, log) as stream:
        table.add(range(1, 1201))
        await stream.publish(table.pipe())
        await stream.start("collect")
        await stream.read(stream.topics.raw, lambda records: len(records) == 1200)
        await stream.set_paused(paused=True)
        await until(lambda: "source-ended" in log.read_text())
        table.add(range(1201, 1301))
        assert len(await stream.all(stream.topics.raw)) == 1200
        await stream.set_paused(paused=False)
        raw = await stream.read(stream.topics.raw, lambda records: len(records) >= 1300)
        assert len(raw) == 1300, "nothing is read again"
