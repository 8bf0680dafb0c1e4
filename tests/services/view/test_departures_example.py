"""The example `departures`: readers of a view see each change of their airport, and so does its page."""

import asyncio
import contextlib
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from aiohttp import web
from playwright.async_api import Page, expect
from tests.support.browser import UNANSWERED, needs_browser, page_without_errors
from tests.support.stream_process import free_port
from tests.support.view.changes import Changes
from tests.support.view.view_stream import KEY, ViewClient, ViewStream, viewing

from hifi.check.pipe_check import check_folder
from hifi.pipe.view import View

EXAMPLE: Final = Path(__file__).parents[3] / "examples/departures"
VIEW: Final = "departures-now"
READERS: Final = 50
AIRPORTS: Final = [f"A{number:02}" for number in range(10)]
FLIGHTS: Final = [f"UA{number}" for number in range(12)]
ROUNDS: Final = 8
BURST: Final = 20
Change = dict[str, Any]


@pytest.fixture
async def departures(stream: ViewStream, monkeypatch: pytest.MonkeyPatch) -> ViewStream:
    """A stream with the pipe of the example; the read key of its view is `KEY`."""
    monkeypatch.setenv("DEPARTURES_READ_KEY", KEY)
    views: list[View] = []
    pipes, problems = check_folder(EXAMPLE, "auto", sql=False, views=views)
    assert (problems, [view.view for view in views]) == ([], [VIEW])
    for pipe in pipes:
        await stream.publish(pipe)
    return stream


async def send(stream: ViewStream, changes: Sequence[Change]) -> None:
    """Send changes in their order; all of a flight go to one partition."""
    for partition in range(stream.partitions):
        partition_changes = [
            change for change in changes if sum(change["flight"].encode()) % stream.partitions == partition
        ]
        if partition_changes:
            await stream.put(*partition_changes, partition=partition, pipe="departures")
    await stream.commit()


class Reader:
    """Reads the changes of an airport, as the page does."""

    def __init__(self, client: ViewClient, airport: str) -> None:
        self.delays: dict[str, list[int]] = defaultdict(list)
        """Flight to all delays that the view told, in order."""
        self._client = client
        self.airport = airport
        self._changes: Changes | None = None

    async def open(self) -> None:
        """Begin, or go on where the last stream ended."""
        last_id = None if self._changes is None else self._changes.last_id
        await self.close()
        self._changes = Changes(self._client, last_id, VIEW, airport=self.airport)
        await self._changes.__aenter__()

    async def close(self) -> None:
        if self._changes is not None:
            await self._changes.__aexit__()

    async def read(self, count: int) -> None:
        """Take in the next changes."""
        for _ in range(count):
            await self._take()

    async def read_to(self, last: int) -> None:
        """Take in changes until each flight has its last delay."""
        while any(self.delays[flight][-1:] != [last] for flight in FLIGHTS):
            await self._take()

    async def _take(self) -> None:
        assert self._changes is not None
        row = await self._changes.row()
        assert row["airport"] == self.airport
        self.delays[row["flight"]].append(row["delay"])


def expected(sent_changes: Sequence[Change], airport: str) -> dict[str, list[int]]:
    """Flight to the delays that were sent for it, in order."""
    delays: dict[str, list[int]] = defaultdict(list)
    for change in sent_changes:
        if change["airport"] == airport:
            delays[change["flight"]].append(change["delay"])
    return delays


def is_part(read_delays: Sequence[int], sent_delays: Sequence[int]) -> bool:
    """Whether a sequence is another one, of which some are left out."""
    remaining = iter(sent_delays)
    return all(delay in remaining for delay in read_delays)


async def test_fifty_readers_see_each_change_of_their_airport(departures: ViewStream, tmp_path: Path) -> None:
    sent_changes: list[Change] = []

    async def change_all(delay: int) -> None:
        changes = [
            {"airport": airport, "flight": flight, "delay": delay}
            for airport in AIRPORTS
            for flight in FLIGHTS
        ]
        sent_changes.extend(changes)
        await send(departures, changes)

    declaration = (EXAMPLE / "departures-now.yaml").read_text("utf-8")
    async with viewing(departures, tmp_path, declaration) as (client, _):
        readers = [Reader(client, AIRPORTS[number % len(AIRPORTS)]) for number in range(READERS)]
        try:
            await asyncio.gather(*(reader.open() for reader in readers))
            for delay in range(ROUNDS):
                if delay == ROUNDS // 2:  # while half of them are away, nothing is missed
                    await asyncio.gather(*(reader.close() for reader in readers[::2]))
                await change_all(delay)
                if delay == ROUNDS // 2:
                    await asyncio.gather(*(reader.open() for reader in readers[::2]))
                await asyncio.gather(*(reader.read(len(FLIGHTS)) for reader in readers))
            for reader in readers:
                assert reader.delays == expected(sent_changes, reader.airport)
            # Of changes that come faster than they are read, a reader may see only the last one.
            for delay in range(ROUNDS, ROUNDS + BURST):
                await change_all(delay)
            await asyncio.gather(*(reader.read_to(ROUNDS + BURST - 1) for reader in readers))
            for reader in readers:
                for flight, delays in expected(sent_changes, reader.airport).items():
                    assert is_part(reader.delays[flight], delays)
                    assert reader.delays[flight][-1] == delays[-1]
        finally:
            await asyncio.gather(*(reader.close() for reader in readers))


@contextlib.asynccontextmanager
async def served(port: int, page: str) -> AsyncIterator[str]:
    """The page of the example on a server of files; its address."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=page, content_type="text/html")

    application = web.Application()
    application.router.add_get("/departures.html", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield f"http://127.0.0.1:{port}/departures.html"
    await runner.cleanup()


def replaced(file: str, before: str, after: str) -> str:
    """A file of the example with another address."""
    text = (EXAMPLE / file).read_text("utf-8")
    assert text.count(before) == 1
    return text.replace(before, after)


async def page_rows(page: Page) -> dict[str, list[str]]:
    """Flight to the cells of its row."""
    rows = await page.locator("tbody tr").all()
    cells = [await row.locator("td").all_inner_texts() for row in rows]
    assert [row[0] for row in cells] == sorted(row[0] for row in cells)
    return {row[2]: row for row in cells}


def as_shown(change: Change) -> list[str]:
    """The cells of a change."""
    status = change["status"]
    if status == "delayed":
        status = f"delayed by {change['delay']} min"
    return [change["scheduled"], change["expected"] or "\N{EN DASH}", change["flight"], change["to"], status]


@needs_browser
@pytest.mark.timeout(300)
async def test_the_page_shows_the_departures_of_an_airport_live(
    departures: ViewStream, tmp_path: Path
) -> None:
    changes = [orjson.loads(line) for line in (EXAMPLE / "departures.ndjson").read_bytes().splitlines()]
    port = free_port()
    declaration = replaced("departures-now.yaml", "http://127.0.0.1:8000", f"http://127.0.0.1:{port}")
    async with (
        viewing(departures, tmp_path, declaration) as (client, service),
        page_without_errors(UNANSWERED) as page,
    ):
        text = replaced("departures.html", "http://127.0.0.1:8092", client.url)
        async with served(port, text) as address:
            await page.goto(f"{address}#JFK")
            await page.get_by_label("Read key").fill("wrong")
            await page.get_by_role("button", name="Show").click()
            await expect(page.locator("#state")).to_have_text("This key opens no view of departures.")
            await page.get_by_label("Read key").fill(KEY)
            await page.get_by_role("button", name="Show").click()
            await expect(page.locator("#state")).to_have_text("No departures yet")
            await send(departures, changes[:60])
            await expect(page.locator("tbody tr")).to_have_count(14)
            await expect(page.locator("#state")).to_have_text("Live")
            await send(departures, changes[60:])
            for airport in ("JFK", "LGA"):
                expected_rows = {
                    change["flight"]: as_shown(change) for change in changes if change["airport"] == airport
                }
                async with asyncio.timeout(60):
                    while await page_rows(page) != expected_rows:
                        await asyncio.sleep(0.05)
                await page.get_by_label("Airport").select_option("LGA")
            hostile_change = {
                "airport": "LGA",
                "flight": "XX1",
                "scheduled": "00:00",
                "to": "<img src=x onerror=alert(1)>",
                "status": "__proto__",
                "delay": "x",
            }
            await send(departures, [hostile_change])
            await expect(page.locator("tbody tr").first).to_contain_text("<img src=x")
            service.stop()
            await expect(page.locator("#state")).to_have_text(
                re.compile("The view (cannot be reached|sends nothing)")
            )
            assert len(await page_rows(page)) == 15
