"""The keys of rows are kept in a topic, and become deletes when a TRUNCATE or a new snapshot has left them out."""

import asyncio
import random
import uuid
import zlib
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError, KafkaTimeoutError
from tests.connectors.debezium.source.test_changes import SOURCE, envelope, notice, record
from tests.support.seeds import seeds

from hifi.pipe.sources.kind import SourceContext
from hifi.runtime.errors import Misconfigured
from hifi_debezium.declaration import DebeziumSource
from hifi_debezium.source import change_events
from hifi_debezium.source.change_events import ChangeEvents
from hifi_debezium.source.kept_keys import KeptKeys
from hifi_debezium.source.key_records import mark_record, read_mark


@pytest.fixture
def source(kafka: str) -> DebeziumSource:
    return DebeziumSource.model_validate(
        SOURCE | {"bootstrap": kafka, "topic": f"changes.{uuid.uuid4().hex}"}
    )


class Reader:
    """Reads records as collect does; `crash` is a reader that begins anew."""

    def __init__(self, source: DebeziumSource) -> None:
        self._source = source
        self._highest: dict[tuple[str, int], int] = {}
        """Source partition and partition of `raw` to the highest position that was written."""
        self.written = set[int]()
        """Positions of deletes that were written."""
        self.refuses = False
        self.renewed = 0
        """Snapshots that were begun because the last one had not ended."""
        self.crash()

    @property
    def notice(self) -> str:
        return self.events.notice

    def crash(self) -> None:
        self.events = ChangeEvents(self._source, SourceContext("s", "p", 10_000))
        self.events._connector.renew = self._renew  # type: ignore[method-assign]
        self._event = self.events.event_reader("cluster")
        self._before = dict(self._highest)

    async def _renew(self) -> None:
        self.renewed += 1
        if self.refuses:
            raise Misconfigured("the slot cannot be dropped")

    async def read(self, *records: Any, writes: int | None = None) -> list[tuple[int, int, str]]:
        """The deletes that follow: the offset of what they follow, their position, and their key.

        Args:
            records: to read.
            writes: parts of a sweep that are written and noted before the reader ends, which has another one that it
                has not written; None: all.
        """
        await self.events._keys.provide()
        await self.events.prepare(records)
        deletions = list[tuple[int, int, str]]()
        for change_record in records:
            event = self._event(change_record)
            if event.followed and not await self._sweep(change_record, event, deletions, writes):
                break
            remembered = self.events.remember([event])
            if remembered is not None:
                await remembered
        await self.events.close()
        return sorted(deletions)

    async def _sweep(
        self, change_record: Any, event: Any, deletions: list[tuple[int, int, str]], writes: int | None
    ) -> bool:
        """Whether all parts of a sweep were written."""
        while following := await self.events.following(change_record, event):
            assert len({name.split("/")[1] for name, _ in following}) == 1, (
                "of more than one partition of keys"
            )
            for name, deletes in following:
                positions = [delete.position for delete in deletes]
                assert positions == sorted(positions)
                for delete in deletes:
                    partition_key = name, zlib.crc32(delete.key) % 4
                    if delete.position > self._before.get(
                        partition_key, -1
                    ):  # else normalize takes it for a copy
                        deletions.append((change_record.offset, delete.position, delete.key.decode()))
                    if writes != 0:
                        self.written.add(delete.position)
                        self._highest[partition_key] = max(
                            delete.position, self._highest.get(partition_key, -1)
                        )
            if writes == 0:
                return False
            await self.events.following_written()
            writes = None if writes is None else writes - 1
        return True


def change(operation: str, number: int, offset: int, table: str = "flights") -> Any:
    row = {
        "id": f"f{number}",
        **dict.fromkeys(("carrier", "flight", "tailnum", "origin", "dest", "distance", "delay")),
    }
    value = envelope(operation, row if operation == "d" else None, None if operation in "dt" else row)
    value["source"]["table"] = table
    change_record = record(value, key={"id": f"f{number}"}, offset=offset)
    if operation == "t":
        change_record.key = None
    return change_record


def snapshot_notice(kind: str, offset: int, **additional_data: str) -> Any:
    notification = notice(kind, **additional_data)
    notification.offset = offset
    return notification


def scanned(offset: int, table: str = "flights") -> Any:
    return snapshot_notice(
        "TABLE_SCAN_COMPLETED", offset, status="SUCCEEDED", scanned_collection=f"public.{table}"
    )


@pytest.mark.more
async def test_a_truncate_deletes_the_rows_of_its_table_that_there_are(source: DebeziumSource) -> None:
    reader = Reader(source)
    changes_before = [
        change("r", 1, 0), change("c", 2, 1), change("c", 3, 2), change("d", 2, 3), change("u", 3, 4),
        change("c", 1, 5, "others"),
    ]  # fmt: skip
    truncate = change("t", 0, 6)
    changes_after = [change("c", 3, 7), change("t", 0, 8), change("t", 0, 9)]
    expected = [(6, 0, '{"id":"f1"}'), (6, 4, '{"id":"f3"}')]
    first_records = await reader.read(*changes_before, truncate, writes=0)
    assert first_records
    assert set(first_records) <= set(expected)
    reader.crash()  # before its deletes are written: they are made again, whatever is read again
    assert await reader.read(truncate, writes=0) == first_records
    reader.crash()
    assert await reader.read(*changes_before[2:], truncate, *changes_after) == [
        *expected,
        (8, 7, '{"id":"f3"}'),
    ]
    reader.crash()  # they are written, and the offset is not committed: none comes again
    assert await reader.read(*changes_before[4:], truncate, *changes_after) == []


@pytest.mark.parametrize("read_again", [0, 15, 40])
async def test_a_sweep_that_ends_between_its_parts_goes_on_with_those_that_were_not_written(
    source: DebeziumSource, read_again: int
) -> None:
    reader = Reader(source)
    changes = [change("c", number, number) for number in range(40)]
    truncate = change("t", 0, 40)
    await reader.read(*changes, truncate, writes=2)
    assert 0 < len(reader.written) < 40
    reader.crash()
    repeated = await reader.read(*changes[40 - read_again :], truncate)
    assert reader.written == set(range(40))
    assert len(repeated) < 40, "a part that was written is not made again, or is a copy"
    reader.crash()
    assert await reader.read(change("c", 7, 41), change("t", 0, 42)) == [(42, 41, '{"id":"f7"}')]


async def test_a_sweep_of_many_rows_has_parts_in_the_order_of_their_positions(
    source: DebeziumSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_events, "_MOST_SWEPT", 2)
    reader = Reader(source)
    changes = [change("c", number, number, "flights" if number % 3 else "others") for number in range(60)]
    await reader.read(*changes, change("t", 0, 60), writes=3)
    assert 0 < len(reader.written) <= 6
    reader.crash()
    await reader.read(change("t", 0, 60))
    assert reader.written == {number for number in range(60) if number % 3}
    assert "rows of public.flights were deleted" in reader.notice


async def test_keys_are_not_written_after_earlier_ones_that_were_not() -> None:
    class AwayKeys(KeptKeys):
        sent = 0

        async def _started(self) -> Any:
            return None

        async def _send(self, *_: Any) -> None:
            self.sent += 1
            await asyncio.sleep(0)
            if self.sent == 1:
                raise KafkaTimeoutError

    security: Any = None
    keys = AwayKeys("127.0.0.1:9", "changes.keys", security, "p")
    first, second = await asyncio.gather(
        keys.write([mark_record("a", 1)]), keys.write([mark_record("a", 2)]), return_exceptions=True
    )
    assert (type(first), type(second), keys.sent) == (KafkaTimeoutError, KafkaError, 1)
    await keys.write([mark_record("a", 3)])
    assert keys.sent == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [(None, b"[1,{}]"), (b"text", b"[1,{}]"), (b"a\0", None), (b"a\0", b"[1]"), (b"a\0", b'["1",{}]')],
)
def test_what_is_no_mark_is_told(key: bytes | None, value: bytes | None) -> None:
    assert read_mark(b"a\0", b'[1,{"b":2}]') == ("a", 1, {"b": 2})
    with pytest.raises(ValueError, match=r"its key|its value|Expecting value"):
        read_mark(key, value)


async def test_records_of_the_topic_of_keys_that_hifi_has_not_written_are_passed_over(
    source: DebeziumSource,
) -> None:
    reader = Reader(source)
    await reader.read(snapshot_notice("STARTED", 0), change("r", 1, 1))
    topic = reader.events._keys.topic
    producer = AIOKafkaProducer(bootstrap_servers=source.bootstrap)
    await producer.start()
    foreign_records = [
        (b"columns of public.flights\0", None), (b"snapshot\0", b"x"), (b"snapshot\0", b'["1",{}]'),
        (b"text", b"[1,{}]"), (b"public.flights\0", b"\xff"), (b"snapshot\0", b"[1]"),
    ]  # fmt: skip
    for partition in range(9):
        for key, value in foreign_records:
            name = key.replace(b"public.flights\0", b"public.flights\0%d" % partition, partition < 8)
            await producer.send_and_wait(topic, value, name, partition=partition)
    await producer.send_and_wait(topic, b"[0,[]]", b"public.flights\0{}", partition=0)
    await producer.stop()
    reader.crash()
    assert await reader.read(change("c", 2, 2), change("t", 0, 3)) == [
        (3, 1, '{"id":"f1"}'),
        (3, 2, '{"id":"f2"}'),
    ]
    marks = await reader.events._keys.marks()
    assert marks["snapshot"] == (0, {"tables": ["public.flights"]})


async def test_rows_of_a_table_are_deleted_though_those_of_another_were_that_changed_later(
    source: DebeziumSource,
) -> None:
    reader = Reader(source)
    changes_before = [change("c", 1, 0, "others"), change("c", 1, 1)]
    assert await reader.read(*changes_before, change("t", 0, 2)) == [(2, 1, '{"id":"f1"}')]
    reader.crash()
    truncate = change("t", 0, 3, "others")
    assert await reader.read(truncate) == [(3, 0, '{"id":"f1"}')]


async def test_a_snapshot_that_begins_again_deletes_what_its_last_begin_has_left_out(
    source: DebeziumSource,
) -> None:
    reader = Reader(source)
    first_changes = [
        snapshot_notice("STARTED", 0),
        change("r", 1, 1),
        change("r", 2, 2),
        change("r", 1, 3, "others"),
    ]
    second_snapshot = [
        snapshot_notice("STARTED", 4),
        change("r", 2, 5),
        scanned(6),
        scanned(7, "others"),
        change("r", 3, 8),
    ]
    assert await reader.read(*first_changes, *second_snapshot) == []
    reader.crash()
    expected = [(9, 1, '{"id":"f1"}'), (9, 3, '{"id":"f1"}')]
    assert await reader.read(snapshot_notice("COMPLETED", 9)) == expected
    assert await reader.read(change("c", 4, 10), snapshot_notice("COMPLETED", 11)) == []
    # A new snapshot of one of the tables, with no row.
    assert await reader.read(snapshot_notice("STARTED", 12), scanned(13), snapshot_notice("COMPLETED", 14)) == [
        (14, 5, '{"id":"f2"}'), (14, 8, '{"id":"f3"}'), (14, 10, '{"id":"f4"}'),
    ]  # fmt: skip


@pytest.mark.parametrize("seed", seeds(1, 5))
async def test_whatever_is_read_again_each_row_that_is_gone_is_deleted_once(
    source: DebeziumSource, seed: int
) -> None:
    random_source = random.Random(seed)
    rows: set[int] = set()
    records: list[Any] = []
    deletions: list[tuple[int, set[int]]] = []
    for offset in range(400):
        kind = random_source.choices("cdt", [0.6, 0.35, 0.05])[0]
        if kind == "t":
            deletions.append((offset, set(rows)))
            rows.clear()
            records.append(change("t", 0, offset))
        elif kind == "d" and rows:
            number = random_source.choice(sorted(rows))
            rows.remove(number)
            records.append(change("d", number, offset))
        else:
            number = random_source.choice(
                [free_number for free_number in range(500) if free_number not in rows]
            )
            rows.add(number)
            records.append(change("c", number, offset))
    reader = Reader(source)
    index, swept_rows = 0, list[tuple[int, int, str]]()
    while index < len(records):
        end = min(len(records), index + random_source.randint(1, 60))
        swept_rows += await reader.read(*records[index:end])
        if random_source.random() < 0.3:
            reader.crash()
            index = max(0, end - random_source.randint(0, 40))
        else:
            index = end
    keys = {number: f'{{"id":"f{number}"}}' for number in range(500)}
    expected = sorted((offset, keys[number]) for offset, numbers in deletions for number in numbers)
    assert len(expected) > 50
    assert sorted((follows, key) for follows, _, key in swept_rows) == expected


async def test_a_snapshot_that_did_not_end_is_made_again_with_another_slot(source: DebeziumSource) -> None:
    reader = Reader(source)
    await reader.read(snapshot_notice("STARTED", 0), change("r", 1, 1))
    assert reader.renewed == 0
    restart_notice = snapshot_notice("STARTED", 2)
    await reader.read(restart_notice)
    assert reader.renewed == 1
    reader.crash()
    await reader.read(restart_notice, change("r", 1, 3))
    assert reader.renewed == 1
    await reader.read(snapshot_notice("STARTED", 4), change("r", 1, 5))
    assert reader.renewed == 1  # the one that was asked for
    await reader.read(snapshot_notice("SKIPPED", 6))
    assert reader.renewed == 2  # it has not ended, and Debezium goes on
    await reader.read(snapshot_notice("SKIPPED", 7))
    assert reader.renewed == 3  # a task that was ending has made the slot again
    await reader.read(
        snapshot_notice("STARTED", 8),
        scanned(9),
        snapshot_notice("COMPLETED", 10),
        snapshot_notice("SKIPPED", 11),
    )
    await reader.read(snapshot_notice("STARTED", 12), scanned(13), snapshot_notice("COMPLETED", 14))
    assert reader.renewed == 3
    reader.crash()
    await reader.read(
        snapshot_notice("STARTED", 0),
        change("r", 1, 1),
        restart_notice,
        snapshot_notice("STARTED", 4),
        snapshot_notice("SKIPPED", 6),
    )
    assert reader.renewed == 3  # read again


async def test_rows_that_may_be_missing_are_told_until_a_snapshot_has_ended(source: DebeziumSource) -> None:
    reader = Reader(source.model_copy(update={"settings": {"snapshot.mode": "initial"}}))
    await reader.read(snapshot_notice("STARTED", 0), change("r", 1, 1), snapshot_notice("SKIPPED", 2))
    assert reader.renewed == 0
    assert "a snapshot was interrupted, so rows may be missing: drop the slot hifi_s_p" in reader.notice
    reader.crash()
    await reader.read(change("c", 2, 3))
    assert "rows may be missing" in reader.notice
    await reader.read(snapshot_notice("STARTED", 4), scanned(5), snapshot_notice("COMPLETED", 6))
    assert "missing" not in reader.notice


async def test_a_slot_that_cannot_be_dropped_is_told_once_for_a_snapshot(source: DebeziumSource) -> None:
    reader = Reader(source)
    reader.refuses = True
    await reader.read(
        snapshot_notice("STARTED", 0), snapshot_notice("SKIPPED", 1), snapshot_notice("SKIPPED", 2)
    )
    assert reader.renewed == 1  # it restarts the connector, which tells the same again
    assert "the slot cannot be dropped" in reader.notice


async def test_a_table_that_is_declared_later_is_read_with_another_snapshot(source: DebeziumSource) -> None:
    first_reader = Reader(source)
    await first_reader.read(snapshot_notice("STARTED", 0), scanned(1), snapshot_notice("COMPLETED", 2))
    await first_reader.read(snapshot_notice("SKIPPED", 3))
    assert first_reader.renewed == 0
    both = source.model_copy(update={"tables": ["public.flights", "public.others"]})
    reader = Reader(both)
    await reader.read(snapshot_notice("SKIPPED", 4), snapshot_notice("STARTED", 5), scanned(6))
    assert reader.renewed == 1
    await reader.read(scanned(7, "others"), snapshot_notice("COMPLETED", 8), snapshot_notice("SKIPPED", 9))
    assert reader.renewed == 1
    again = Reader(source)
    await again.read(snapshot_notice("SKIPPED", 10))
    assert again.renewed == 0
    reader = Reader(both)
    await reader.read(snapshot_notice("SKIPPED", 11))
    assert reader.renewed == 1, "its changes are missing from while it was not declared"


async def test_a_table_that_did_not_exist_when_a_snapshot_began_makes_no_other_snapshot(
    source: DebeziumSource,
) -> None:
    reader = Reader(source.model_copy(update={"tables": ["public.flights", "public.others"]}))
    await reader.read(snapshot_notice("STARTED", 0), scanned(1), snapshot_notice("COMPLETED", 2))
    await reader.read(change("c", 1, 3, "others"), snapshot_notice("SKIPPED", 4))
    assert reader.renewed == 0


async def test_a_table_that_is_added_before_the_begin_of_a_snapshot_is_read_is_read_with_another_one(
    source: DebeziumSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = Reader(source.model_copy(update={"tables": ["public.flights", "public.others"]}))

    async def added_tables() -> list[str]:
        return ["public.others"]

    async def declare() -> None:
        pass

    monkeypatch.setattr(reader.events._connector, "added_tables", added_tables)
    monkeypatch.setattr(reader.events._connector, "declare", declare)
    await reader.events.provide_topic()
    snapshot = snapshot_notice("STARTED", 0), scanned(1), snapshot_notice("COMPLETED", 2)
    await reader.read(*snapshot, snapshot_notice("SKIPPED", 3))
    assert reader.renewed == 1
    await reader.read(snapshot_notice("STARTED", 4), scanned(5), snapshot_notice("COMPLETED", 6))
    await reader.read(snapshot_notice("SKIPPED", 7))
    assert reader.renewed == 1


async def test_a_table_that_cannot_be_read_with_another_snapshot_is_told_while_it_is_declared(
    source: DebeziumSource,
) -> None:
    await Reader(source).read(snapshot_notice("STARTED", 0), scanned(1), snapshot_notice("COMPLETED", 2))
    reader = Reader(source.model_copy(update={"tables": ["public.flights", "public.others"]}))
    reader.refuses = True
    await reader.read(snapshot_notice("SKIPPED", 3), snapshot_notice("SKIPPED", 4))
    assert reader.renewed == 1
    expected = "no snapshot has read public.others, so rows may be missing: drop the slot hifi_s_p"
    assert expected in reader.notice
    reader.crash()
    await reader.read(change("c", 1, 5))
    assert expected in reader.notice
    without = Reader(source)
    await without.read(change("c", 2, 6))
    assert without.notice == ""


class ReaderOfTopic(Reader):
    """A reader of a topic of the changes with some id."""

    def __init__(self, source: DebeziumSource, changes_id: str) -> None:
        self._changes_id = changes_id
        super().__init__(source)

    def crash(self) -> None:
        super().crash()
        own_id = self.events._keys.topic_id

        async def topic_id(topic: str = "") -> str:
            return self._changes_id if topic else await own_id()

        self.events._keys.topic_id = topic_id  # type: ignore[method-assign]


async def test_what_an_earlier_topic_of_the_changes_told_is_before_all_of_the_next_one(
    source: DebeziumSource,
) -> None:
    earlier = ReaderOfTopic(source, "a" * 32)
    await earlier.read(
        snapshot_notice("STARTED", 6), change("c", 1, 10), change("c", 2, 11), scanned(12),
        snapshot_notice("COMPLETED", 13),
    )  # fmt: skip
    reader = ReaderOfTopic(source, "b" * 32)
    deletes = await reader.read(
        snapshot_notice("STARTED", 0), change("r", 2, 1), scanned(2), snapshot_notice("COMPLETED", 3)
    )
    assert [(offset, key) for offset, _, key in deletes] == [(3, '{"id":"f1"}')]
    assert await reader.read(change("t", 0, 4)) == [(4, 1, '{"id":"f2"}')]
    assert await reader.read(snapshot_notice("STARTED", 5)) == []
    reader.crash()
    await reader.read(snapshot_notice("STARTED", 6))
    assert reader.renewed == 1


async def test_a_topic_of_the_changes_that_is_created_again_while_it_is_read_is_noticed(
    source: DebeziumSource,
) -> None:
    reader = ReaderOfTopic(source, "a" * 32)
    await reader.read(change("c", 1, 0), change("c", 2, 1))
    reader._changes_id = "b" * 32
    deletes = await reader.read(change("c", 2, 0), change("t", 0, 1))
    assert sorted(key for _, _, key in deletes) == ['{"id":"f1"}', '{"id":"f2"}']


async def test_a_truncate_is_told_whether_its_rows_are_deleted_or_not(source: DebeziumSource) -> None:
    reader = Reader(source)
    assert await reader.read(change("c", 1, 0)) == []
    assert reader.notice == ""
    await reader.read(change("t", 0, 1))
    assert reader.notice == "1 rows of public.flights were deleted for a TRUNCATE"
    ignoring = Reader(source.model_copy(update={"truncate": "ignore"}))
    assert await ignoring.read(change("t", 0, 2)) == []
    assert ignoring.notice == "a TRUNCATE of public.flights was ignored: its rows stay at destinations"


async def test_a_deleted_topic_of_the_keys_is_made_again_and_told_until_a_snapshot_has_ended(
    source: DebeziumSource,
) -> None:
    reader = Reader(source)
    await reader.read(
        snapshot_notice("STARTED", 0), change("r", 1, 1), scanned(2), snapshot_notice("COMPLETED", 3)
    )
    assert "keys" not in reader.notice
    warnings: dict[str, str | None] = {}
    reader.events._topic_id = await reader.events._keys.topic_id()
    admin = AIOKafkaAdminClient(bootstrap_servers=source.bootstrap)
    await admin.start()
    await admin.delete_topics([reader.events._keys.topic])
    await admin.close()
    watching = asyncio.create_task(reader.events._watch_keys(warnings.__setitem__))
    async with asyncio.timeout(30):
        while reader.events._reader.columns is not None:  # type: ignore[union-attr]
            await asyncio.sleep(0.1)
    watching.cancel()
    await reader.read(change("c", 2, 4))
    expected = f"the topic {source.topic}.keys has no keys from before the offset 4"
    assert expected in reader.notice
    reader.crash()
    await reader.read(change("c", 3, 5))
    assert expected in reader.notice
    await reader.read(
        snapshot_notice("STARTED", 6), change("r", 1, 7), scanned(8), snapshot_notice("COMPLETED", 9)
    )
    assert expected not in reader.notice
    reader.crash()
    await reader.read(change("c", 4, 10))
    assert expected not in reader.notice
