"""`hifi view` answers over both colours of a stream, each with a log and a service view of its own."""

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
from tests.support.egest.egest_stream import PROGRAMS
from tests.support.view.view_stream import KEY, OTHER_KEY, VIEW, ViewStream, viewing

from hifi.record.cloudevents.timestamps import format_us
from hifi.runtime.clock import now_us
from hifi.runtime.errors import HifiError, Misconfigured
from hifi_cli.query.view_rows import merged, query, read_rows

BY_TIME: Final = VIEW.replace("key: [flight]", "order: time\nkey: [flight]")
EVENTS: Final = 90
FLIGHTS: Final = 12


@pytest.fixture
async def other_stream(kafka: str, stream: ViewStream) -> AsyncIterator[ViewStream]:
    """The other colour: a second stream with the same pipe, and other partitions."""
    del stream  # it sets the keys
    view_stream = ViewStream(kafka, partitions=3)
    await view_stream.create()
    yield view_stream
    await view_stream.producer.stop()


async def hifi_view(*arguments: str) -> tuple[int, Any, str]:
    """Exit status, JSON and messages of `hifi view flights-now`."""
    process = await asyncio.create_subprocess_exec(
        PROGRAMS / "hifi", "view", "flights-now", *arguments, "--key", KEY, "--json", stdout=-1, stderr=-1
    )
    output, errors = await process.communicate()
    return (
        process.returncode or 0,
        orjson.loads(output) if output else None,
        " ".join(errors.decode().split()),
    )


async def rows_of_command(
    *urls: str, key: str = KEY, sql: str = "", at_least: str | None = None, max_rows: int = 1000
) -> list[dict[str, Any]]:
    """The rows of the answers of these addresses, queried as by the command."""

    def ask() -> list[dict[str, Any]]:
        answers = {
            url: read_rows(url, key, "flights-now", at_least=at_least, within_s=1, row_limit=max_rows)
            for url in urls
        }
        result = query(merged(answers), "flights_now", sql, rows=1000, within_s=30)
        return [dict(zip(result.columns, row, strict=True)) for row in result.rows]

    return await asyncio.to_thread(ask)


async def send(colours: Sequence[ViewStream]) -> list[dict[str, Any]]:
    """Send events, each to one of the colours, accepted one after the other, with times in another order."""
    chance = random.Random(7)
    sent_events = []
    first_us = now_us() - 600_000_000
    for number in range(EVENTS):
        flight = f"UA{chance.randrange(FLIGHTS):02}"
        event = {"flight": flight, "carrier": chance.choice(["UA", "DL"]), "delay": number}
        accepted_us = first_us + number * 1_000_000
        time_us = accepted_us - chance.randrange(EVENTS) * 1_000_000
        stream = chance.choice(colours)
        await stream.put(
            event,
            partition=sum(flight.encode()) % stream.partitions,
            accepted_us=accepted_us,
            time=format_us(time_us),
        )
        sent_events.append({**event, "at": (time_us, accepted_us)})
    for stream in colours:
        await stream.commit()
    return sent_events


def newest_delays(sent_events: Sequence[dict[str, Any]], *, by_time: bool) -> dict[str, int]:
    """Flight to the delay of its newest event."""
    delays = {}
    for event in sorted(sent_events, key=lambda event: event["at"] if by_time else event["at"][1]):
        delays[event["flight"]] = event["delay"]
    return delays


@pytest.mark.parametrize(
    "declaration", [VIEW, pytest.param(BY_TIME, marks=pytest.mark.more)], ids=["offset", "time"]
)
async def test_one_query_answers_over_both_colours(
    stream: ViewStream, other_stream: ViewStream, tmp_path: Path, declaration: str
) -> None:
    folders = [tmp_path / colour for colour in ("blue", "green")]
    for folder in folders:
        folder.mkdir()
    sent_events = await send([stream, other_stream])
    expected = newest_delays(sent_events, by_time=declaration is BY_TIME)
    async with (
        viewing(stream, folders[0], declaration) as (blue, _),
        viewing(other_stream, folders[1], declaration) as (
            green,
            _,
        ),
    ):
        status, rows, messages = await hifi_view("--until", "now", "--url", blue.url, "--url", green.url)
        assert status == 0, messages
        assert {row["flight"]: row["delay"] for row in rows} == expected
        assert [row["flight"] for row in rows] == sorted(expected)
        assert "complete until 20" in messages
        for colour in (blue, green):  # neither has all of it
            rows = await rows_of_command(colour.url)
            assert {row["flight"]: row["delay"] for row in rows} != expected
        sql = "SELECT count(*) AS flights, max(delay) AS worst, sum(delay) AS total FROM flights_now"
        delays = list(expected.values())
        assert await rows_of_command(blue.url, green.url, sql=sql) == [
            {"flights": len(delays), "worst": max(delays), "total": sum(delays)}
        ]


async def test_an_answer_that_would_lack_something_is_refused(
    stream: ViewStream, other_stream: ViewStream, tmp_path: Path
) -> None:
    await stream.events({"flight": "UA1", "delay": 1}, {"flight": "UA3", "delay": 3})
    await other_stream.events({"flight": "UA2", "delay": 2})
    folders = [tmp_path / colour for colour in ("blue", "green", "changed")]
    for folder in folders:
        folder.mkdir()
    async with viewing(stream, folders[0]) as (blue, _):
        async with viewing(other_stream, folders[1], view_wait_s=0.2) as (green, _):
            urls = (blue.url, green.url)
            with pytest.raises(Misconfigured, match="the key opens no view at"):
                await rows_of_command(*urls, key=OTHER_KEY)
            with pytest.raises(Misconfigured, match="there is the table flights_now with the columns flight"):
                await rows_of_command(*urls, sql="SELECT * FROM flights")
            with pytest.raises(Misconfigured, match="not authorized"):
                await rows_of_command(*urls, sql="DELETE FROM flights_now")
            with pytest.raises(Misconfigured, match="allow more with --most"):
                await rows_of_command(*urls, max_rows=1)
            await other_stream.put({"flight": "UA2", "delay": 3})
            with pytest.raises(HifiError, match="not complete until this time yet"):
                await rows_of_command(*urls, at_least=format_us(now_us()).decode())
            await other_stream.commit()
        status, rows, messages = await hifi_view("--url", blue.url, "--url", green.url)
        assert (status, rows) == (1, None)
        assert "view does not answer" in messages
        async with viewing(other_stream, folders[2], VIEW.replace("delay: int", "delay: double")) as (
            green,
            _,
        ):
            with pytest.raises(Misconfigured, match="with different fields"):
                await rows_of_command(blue.url, green.url)
