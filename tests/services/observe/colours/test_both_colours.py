"""Two streams as colours on a real Kafka, each with an observe: API, command line, and console in a browser."""

import asyncio
import contextlib
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from axe_playwright_python.async_playwright import Axe
from tests.support.browser import CHROMIUM, browser
from tests.support.observe.stream_double import Stream, new_stream, pipe
from tests.support.observe_principal import VIEWER, create_principals

from hifi.delivery.colours import Colour, Colours, ColourState, FrontAddress
from hifi.kafka.admin import create_topics
from hifi.kafka.producer import Producer
from hifi.kafka.topics import ControlTopics
from hifi.runtime.clock import now_us
from hifi_infra.ports import free_port

HAPROXY = shutil.which("haproxy", path="/usr/sbin:/usr/bin:/usr/local/sbin")
WITHIN_S = 180
pytestmark = pytest.mark.timeout(600)


class Both:
    """Blue and green, each with its observe."""

    def __init__(self, kafka: str, control: ControlTopics, token: Path, blue: Stream, green: Stream) -> None:
        self.kafka, self.control = kafka, control
        self.settings: dict[str, Any] = {"colours": control.control, "observe_token_file": token}
        self.blue, self.green = blue, green
        self.minute = now_us() // 60_000_000 - 3

    async def tell(
        self, blue_url: str, green_url: str, stats: str = "", state: ColourState = ColourState.ACTIVE
    ) -> None:
        """Write the record of the colours; `stats`: path of the front's socket; `state`: of green."""
        blue_colour = Colour(7500, ColourState.ACTIVE, (), blue_url)
        green_colour = Colour(2500, state, (), green_url)
        colours = Colours(
            {"blue": blue_colour, "green": green_colour},
            (FrontAddress("http://127.0.0.1:9", stats),),
            1,
            "test",
        )
        producer = Producer(self.kafka, "test")
        await producer.start()
        await producer.send_and_wait(self.control.colours, 0, [colours.record()])
        await producer.stop()


@pytest.fixture
async def both(kafka: str, tmp_path: Path) -> AsyncIterator[Both]:
    control = ControlTopics(f"c{secrets.token_hex(4)}")
    await create_topics(kafka, control, partitions=1, replication=1)
    await create_principals(kafka, control)
    token = tmp_path / "viewer.token"
    token.write_text("token-of-viewer\n")
    async with new_stream(kafka, pipe()) as blue, new_stream(kafka, pipe()) as green:
        yield Both(kafka, control, token, blue, green)


async def get(url: str, path: str) -> Any:
    async with aiohttp.ClientSession(headers=VIEWER) as session, session.get(url + path) as answer:
        return await answer.json(content_type=None)


async def merged_minute(
    url: str, minute: int, missing: list[str], **figures: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The answer over both colours and a minute of it, once it misses exactly `missing` and has the figures."""
    answer: Any = None
    end_s = time.monotonic() + WITHIN_S
    while time.monotonic() < end_s:
        answer = await get(url, "/api/v1/pipes/flights/colours")
        for row in answer.get("minutes", ()):
            expected = {"minute": minute, "missing": missing, **figures}
            if {name: row[name] for name in expected} == expected:
                return answer, row
        await asyncio.sleep(0.1)
    raise AssertionError(answer)


async def test_a_minute_is_counted_over_both_colours_and_one_that_is_away_is_named(both: Both) -> None:
    minute = both.minute
    await both.blue.events(0, minute, 30)
    await both.blue.commit(0)
    await both.green.events(1, minute, 10, lose={"normalized": [3]})
    await both.green.commit(1)
    settings = both.settings
    async with both.blue.observing(**settings) as (observer, blue):
        async with both.green.observing(**settings) as (_, green):
            assert (await get(blue, "/api/v1/pipes/flights/colours"))["title"] == "No colours"
            await both.tell(blue, green)
            figures = {"in": 40, "delivered": 39, "lost": 1, "state": "down"}
            _, row = await merged_minute(blue, minute, ["front"], **figures)  # nobody watched the front
            assert {name: (colour["share"], colour["lost"]) for name, colour in row["colours"].items()} == {
                "blue": (0.75, 0),
                "green": (0.25, 1),
            }
            _, green_row = await merged_minute(green, minute, ["front"], **figures)
            assert green_row["colours"] == row["colours"]

            for stream, partition in ((both.blue, 0), (both.green, 1)):
                await stream.events(partition, minute + 1, 5)
                await stream.commit(partition)
            await merged_minute(blue, minute + 1, ["front"], **{"in": 10, "delivered": 10})
            stored_answer = await get(blue, "/api/v1/pipes/flights/minutes?last=10&lags=whole")
            newest_minute = next(
                stored_minute
                for stored_minute in stored_answer["minutes"]
                if stored_minute["minute"] == minute + 1
            )
            assert sum(newest_minute["lag_sketch"]["c"]) == 5  # kept, so that percentiles can be merged

            assert observer.stream.publisher.connected
            counts = {"answered": 10, "failed": 2, "rejected": 0, "connection_errors": 0, "gap_s": 1.0}
            await observer.stream.publisher.front(minute + 1, counts)
            _, row = await merged_minute(blue, minute + 1, [], state="down")
            assert row["causes"] == ["ingest"]
            assert row["intake"]["failed"] == 2
            output = await asyncio.to_thread(command, "minutes", "flights", "--colours", "--url", blue)
            assert "75.0 %" in output
            assert "incomplete: front" in output
            if CHROMIUM is not None:
                await check_page(f"{blue}/pipes/flights/colours", "75.0 %")

        colours_answer, row = await merged_minute(blue, minute, ["green", "front"], state="unknown")
        assert row["in"] == 30
        assert colours_answer["down_minutes"] == 1
        errors_by_colour = {colour["colour"]: colour["away"] for colour in colours_answer["colours"]}
        assert errors_by_colour["blue"] is None
        assert green in errors_by_colour["green"]


@pytest.mark.more  # it waits for whole minutes
@pytest.mark.skipif(HAPROXY is None, reason="no HAProxy here: apt-get install haproxy")
async def test_a_minute_in_which_a_real_front_refused_or_was_dead_is_down(both: Both, tmp_path: Path) -> None:
    port, stats = free_port(), tmp_path / "stats"
    (tmp_path / "haproxy.cfg").write_text(
        f"global\n  stats socket {stats} mode 600\n"
        "defaults\n  mode http\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n"
        f"listen front\n  bind 127.0.0.1:{port}\n  retries 0\n  server blue 127.0.0.1:{free_port()}\n"
    )
    settings = both.settings | {"observe_heartbeat_gap_s": 10}
    async with both.blue.observing(**settings) as (_, blue), both.green.observing(**settings) as (_, green):
        haproxy = subprocess.Popen([str(HAPROXY), "-f", tmp_path / "haproxy.cfg"])
        try:
            await both.tell(blue, green, str(stats))
            watched_row = await first_watched(blue, f"http://127.0.0.1:{port}/")
        finally:
            haproxy.kill()
            haproxy.wait()
        assert watched_row["front"]["failed"] > 0
        assert (watched_row["state"], watched_row["causes"]) == ("down", ["ingest"])
        _, dead_row = await merged_minute(blue, watched_row["minute"] + 2, [], state="down")
        assert (dead_row["front"]["failed"], dead_row["front"]["gap_s"]) == (0, 60)
        async with both.blue.observing(**settings) as (_, restarted_url):
            _, kept_row = await merged_minute(restarted_url, watched_row["minute"], [], state="down")
            assert kept_row["front"] == watched_row["front"]


async def first_watched(observe: str, front: str) -> dict[str, Any]:
    """The first minute in which the front was watched from begin to end; requests go there all the time."""
    end_s = time.monotonic() + 2 * WITHIN_S
    while time.monotonic() < end_s:
        with contextlib.suppress(
            aiohttp.ClientError, ValueError
        ):  # HAProxy has not started, or answers without JSON
            await get(front, "")
        answer = await get(observe, "/api/v1/pipes/flights/colours")
        for row in answer.get("minutes", ()):
            if not row["missing"]:
                return dict(row)
        await asyncio.sleep(0.2)
    raise AssertionError(answer)


def command(*arguments: str) -> str:
    return subprocess.run(
        [sys.executable, "-m", "hifi_cli", *arguments],
        env=os.environ | {"COLUMNS": "250", "HIFI_TOKEN": "token-of-viewer"},
        capture_output=True,
        check=True,
        timeout=WITHIN_S,
    ).stdout.decode()


async def check_page(url: str, text: str) -> None:
    """The page shows a text, and has no accessibility violation in both themes and at two widths."""
    async with browser() as chromium:
        for theme, width in (("light", 1280), ("dark", 400)):
            context = await chromium.new_context(
                color_scheme="dark" if theme == "dark" else "light",
                viewport={"width": width, "height": 900},
            )
            page = await context.new_page()
            await page.set_extra_http_headers(VIEWER)
            await page.goto(url)
            assert text in await page.locator("#minutes").inner_text()
            violations = (await Axe().run(page)).response["violations"]
            assert [violation["id"] for violation in violations] == []
            scroll_width = await page.evaluate("document.documentElement.scrollWidth")
            assert scroll_width <= width
