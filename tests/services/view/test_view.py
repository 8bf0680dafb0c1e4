"""view on a real Kafka: rows, completeness, the account, and files that are lost, damaged or full."""

import asyncio
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from tests.support.egest.egest_stream import until
from tests.support.held_pipes import unreadable_record
from tests.support.small_disk import filled, small_disk
from tests.support.view.view_stream import (
    PIPE,
    VIEW,
    ViewProcess,
    ViewStream,
    summed,
    viewing,
    viewing_process,
)

from hifi.pipe.model import Pipe
from hifi.pipe.registry import publish
from hifi.record.cloudevents.timestamps import format_us
from hifi.runtime.clock import now_us

NAME = "/v1/views/flights-now"
DAY_US = 86_400_000_000


def without_place(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "hifi"}


async def test_a_row_shows_the_newest_event_of_its_key(stream: ViewStream, tmp_path: Path) -> None:
    await stream.events(
        {"flight": "UA1", "carrier": "UA", "delay": 5, "cancelled": False, "speed": 1},
        {"flight": "UA1", "carrier": "UA", "delay": 9, "cancelled": True, "speed": 2.5, "not": "declared"},
    )
    async with viewing(stream, tmp_path) as (client, _):
        rows = await client.rows()
        assert list(map(without_place, rows)) == [
            {"flight": "UA1", "carrier": "UA", "delay": 9, "cancelled": True, "speed": 2.5}
        ]
        assert rows[0]["hifi"]["raw"] == "0:1"
        await stream.events({"flight": "UA1", "carrier": None, "delay": "late"})
        await stream.events({"flight": "DL7", "delay": 1}, partition=1)
        assert list(map(without_place, await client.rows())) == [
            {"flight": "DL7", "carrier": None, "delay": 1, "cancelled": None, "speed": None},
            {"flight": "UA1", "carrier": None, "delay": None, "cancelled": None, "speed": None},
        ]
        status, row, headers = await client.ask(f"{NAME}/rows/DL7")
        assert (status, row["delay"]) == (200, 1)
        assert headers["hifi-complete-until"].startswith("20")
        status, body, headers = await client.ask(f"{NAME}/rows/XX0")
        assert (status, body["title"]) == (404, "Not Found")
        assert headers["hifi-complete-until"].startswith("20")


async def test_every_record_that_was_read_has_an_outcome(stream: ViewStream, tmp_path: Path) -> None:
    await stream.events(
        {"flight": "UA1", "delay": 5}, {"flight": "UA1", "delay": "x"}, {"delay": 1}, None, b"[1]"
    )
    await stream.events({"flight": "UA1"}, pipe="other")
    await stream.events({"flight": "DL7"}, partition=1)
    stream.next_raw[1] = 0
    await stream.events({"flight": "DL7"}, partition=1)  # a copy
    await stream.events({"flight": "AA3"}, accepted_us=now_us() - 2 * DAY_US)
    async with viewing(stream, tmp_path) as (client, _):
        assert [row["flight"] for row in await client.rows()] == ["DL7", "UA1"]
        _, body, _ = await client.ask(f"{NAME}/accounts")
    assert summed(body["ranges"]) == {
        "read": 9,
        "absent": 0,
        "unfit": 1,
        "other": 1,
        "no_data": 1,
        "applied": 3,
        "older": 1,
        "expired": 1,
        "refused": 2,
    }
    assert [(refusal["partition"], refusal["offset"], refusal["reason"]) for refusal in body["refused"]] == [
        (0, 4, "not-json"),
        (0, 2, "no-key"),
    ]
    assert body["refused"][1]["event"] == "00000000000000ab:2"


async def test_it_is_complete_only_until_what_the_services_before_it_have_done(
    stream: ViewStream, tmp_path: Path
) -> None:
    await stream.events({"flight": "UA1", "delay": 1})
    async with viewing(stream, tmp_path, view_wait_s=0.5) as (client, _):
        await client.rows()
        await stream.put({"flight": "UA1", "delay": 2})
        at_least = format_us(now_us()).decode()
        for service in ("normalize", "enrich"):
            status, body, headers = await client.ask(f"{NAME}/rows/UA1", params={"at_least": at_least})
            assert (status, headers["retry-after"]) == (503, "1"), f"{service} has not committed"
            assert body["complete_until"] < at_least
            await stream.commit(service)
        async with asyncio.timeout(20):
            while (answer := await client.ask(f"{NAME}/rows/UA1", params={"at_least": at_least}))[0] == 503:
                pass
        assert answer[1]["delay"] == 2


async def test_a_restart_reads_on_where_the_rows_end(stream: ViewStream, tmp_path: Path) -> None:
    await stream.events(*({"flight": f"UA{number}", "delay": number} for number in range(50)))
    async with viewing(stream, tmp_path) as (client, _):
        assert len(await client.rows()) == 50
    await stream.events({"flight": "UA7", "delay": 100})
    async with viewing(stream, tmp_path) as (client, _):
        rows = {row["flight"]: row["delay"] for row in await client.rows()}
        assert (len(rows), rows["UA7"]) == (50, 100)
        _, body, _ = await client.ask(f"{NAME}/accounts")
        assert summed(body["ranges"])["read"] == 51


@pytest.mark.parametrize("damage", ["removed", "damaged"])
async def test_a_file_that_is_lost_while_it_is_served_is_made_anew(
    stream: ViewStream, tmp_path: Path, damage: str
) -> None:
    await stream.events(
        *({"flight": f"UA{number}", "carrier": "UA" * 200, "delay": number} for number in range(300))
    )
    file = tmp_path / "views" / "flights-now.sqlite"
    async with viewing(stream, tmp_path) as (client, _):
        rows_before = await client.rows()
        if damage == "removed":
            for suffix in ("", "-wal", "-shm"):
                file.with_name(file.name + suffix).unlink(missing_ok=True)
            await until(file.exists)  # also where no event comes
        else:
            with sqlite3.connect(file) as database:
                database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            with file.open("r+b") as database_file:
                database_file.seek(4096)
                database_file.write(os.urandom(file.stat().st_size - 4096))
        await stream.events({"flight": "DL7"})
        async with asyncio.timeout(60):
            while True:
                status, _, headers = await client.ask(f"{NAME}/rows/DL7")
                if status == 200 and headers["hifi-complete-until"] != "none":
                    break
                await asyncio.sleep(0.05)
        assert [row for row in await client.rows() if row["flight"] != "DL7"] == rows_before


async def test_a_full_view_stands_still_says_so_and_goes_on_when_rows_expire(
    stream: ViewStream, tmp_path: Path
) -> None:
    late_us = now_us() - DAY_US + 8_000_000  # they expire in eight seconds
    await stream.events(
        *({"flight": f"UA{number}", "carrier": "x" * 10_000} for number in range(200)), accepted_us=late_us
    )
    async with viewing(stream, tmp_path, view_max_bytes=1024 * 1024) as (client, service):
        await until(lambda: "view flights-now" in service.health.warnings)
        assert service.health.ready
        assert "HIFI_VIEW_MAX_BYTES" in service.health.warnings["view flights-now"]
        await stream.events({"flight": "DL7"}, partition=1)
        status, body, _ = await client.ask(NAME)
        assert (status, body["state"]) == (200, "full")
        await until(lambda: "view flights-now" not in service.health.warnings)
        async with asyncio.timeout(30):
            while [row["flight"] for row in (await client.ask(f"{NAME}/rows"))[1]["rows"]] != ["DL7"]:
                await asyncio.sleep(0.1)
        await client.rows()


async def test_a_full_disk_stops_one_view_which_goes_on_when_there_is_space(
    stream: ViewStream, tmp_path: Path
) -> None:
    await stream.events({"flight": "UA1", "delay": 1})
    with small_disk(tmp_path / "disk", "4m") as disk:
        async with viewing(stream, tmp_path, view_data=disk / "views") as (client, service):
            rows_before = await client.rows()
            with filled(disk):
                for number in range(4):
                    await stream.events(
                        *({"flight": f"UA{number}-{index}", "carrier": "x" * 2000} for index in range(100))
                    )
                await until(lambda: "disk" in service.health.warnings.get("view flights-now", ""))
                assert service.health.ready
                status, row, _ = await client.ask(f"{NAME}/rows/UA1")
                assert (status, row) == (200, rows_before[0])
            assert len(await client.rows()) == 401
            _, body, _ = await client.ask(f"{NAME}/accounts")
            assert summed(body["ranges"])["applied"] == 401
            assert "view flights-now" not in service.health.warnings


async def test_a_view_stands_still_while_its_pipe_has_another_key(stream: ViewStream, tmp_path: Path) -> None:
    await stream.events({"flight": "UA1", "delay": 1})
    async with viewing(stream, tmp_path) as (client, service):
        await client.rows()
        changed_pipe = PIPE | {"source": {**PIPE["source"], "partition_key": "carrier"}}  # type: ignore[dict-item]
        await stream.publish(Pipe.model_validate(changed_pipe))
        await until(lambda: "order: time" in service.health.warnings.get("view flights-now", ""))
        assert (await client.ask(NAME))[1]["state"] == "refused"
        await stream.publish(Pipe.model_validate(PIPE))
        await stream.events({"flight": "UA1", "delay": 2})
        assert [row["delay"] for row in await client.rows()] == [2]


async def test_killed_in_the_middle_of_a_load_it_has_the_rows_that_were_sent(
    stream: ViewStream, tmp_path: Path
) -> None:
    folder = tmp_path / "pipes"
    folder.mkdir()
    (folder / "view.yaml").write_text(VIEW)
    sent_delays: dict[str, int] = {}
    count = 0
    process = ViewProcess(stream, tmp_path, tmp_path / "log")
    process.start()
    try:
        for load_round in range(6):
            for _ in range(10):
                events: dict[int, list[dict[str, Any]]] = {0: [], 1: []}
                for _ in range(100):
                    key = f"UA{count * 7919 % 500}"
                    events[hash(key) % 2].append({"flight": key, "delay": count})
                    sent_delays[key] = count
                    count += 1
                for partition, batch in events.items():
                    await stream.put(*batch, partition=partition)
            if load_round < 4:
                process.kill()
                process.start()
        await stream.commit()
        async with viewing_process(process) as client:
            rows = await client.rows()
            _, body, _ = await client.ask(f"{NAME}/accounts")
        assert {row["flight"]: row["delay"] for row in rows} == sent_delays
        totals = summed(body["ranges"])
        assert (totals["read"], totals["absent"]) == (count, 0)
        assert totals["applied"] == count
        assert process.stop() == 0
    finally:
        process.kill()
    assert "Traceback" not in (tmp_path / "log").read_text()


async def test_a_view_of_a_held_pipe_stands_still(stream: ViewStream, tmp_path: Path) -> None:
    await stream.events({"flight": "UA1", "delay": 1})
    async with viewing(stream, tmp_path) as (client, service):
        await client.rows()
        await publish(stream.kafka, stream.topics, [unreadable_record(Pipe.model_validate(PIPE), 2)])
        await until(lambda: "is held" in service.health.warnings.get("view flights-now", ""))
        assert (await client.ask(NAME))[1]["state"] == "refused"
        await stream.publish(Pipe.model_validate(PIPE))
        await stream.events({"flight": "UA1", "delay": 2})
        assert [row["delay"] for row in await client.rows()] == [2]
