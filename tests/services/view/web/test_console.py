"""The console page of views in a browser: what a key opens, filters, and rows as they change."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest
from playwright.async_api import Page, expect
from tests.support.browser import SHOTS, UNANSWERED, needs_browser, page_without_errors
from tests.support.view.view_stream import KEY, OTHER_KEY, OTHER_VIEW, VIEW, ViewStream, viewing

ROWS: Final = "#rows tbody tr"
pytestmark = [needs_browser, pytest.mark.timeout(300)]


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    async with page_without_errors(UNANSWERED) as page:
        yield page


async def enter(page: Page, key: str) -> None:
    """Enter a read key."""
    await page.get_by_label("Read key").fill(key)
    await page.get_by_role("button", name="Show").click()


async def shot(page: Page, name: str) -> None:
    if SHOTS:
        await page.screenshot(path=Path(SHOTS) / f"{name}.png")


async def test_the_rows_of_a_view_are_searched_and_shown_as_they_change(
    stream: ViewStream, tmp_path: Path, page: Page
) -> None:
    await stream.events(
        *(
            {
                "flight": f"{'UA' if number % 2 else 'DL'}{number:03}",
                "carrier": "UA" if number % 2 else "DL",
                "delay": number,
                "cancelled": number % 7 == 0,
                "speed": number / 4,
            }
            for number in range(150)
        )
    )
    async with viewing(stream, tmp_path, f"{VIEW}---{OTHER_VIEW}", observe_url="http://127.0.0.1:9") as (
        client,
        _,
    ):
        await client.rows()
        await page.goto(client.url)
        await expect(page.get_by_role("link", name="Alarms")).to_have_attribute(
            "href", "http://127.0.0.1:9/alarms"
        )
        await enter(page, "wrong")
        await expect(page.locator("#problem")).to_have_text("This key opens no view.")
        await enter(page, KEY)
        await expect(page.locator("#views tbody th")).to_have_text(["flights-now"])
        await expect(page.locator(ROWS)).to_have_count(100)
        await expect(page.locator("#range")).to_have_text("Rows 1 to 100 of 150")
        await expect(page.locator("#views tbody td").nth(2)).to_have_text("live")
        await shot(page, "views")
        await page.get_by_role("button", name="Next rows").click()
        await expect(page.locator("#range")).to_have_text("Rows 101 to 150 of 150")
        await expect(page.locator(ROWS)).to_have_count(50)

        for field, text, count in (
            ("carrier", "UA", 75),
            ("flight", "UA01*", 5),
            ("delay", "147", 1),
            ("delay", "140..", 10),
            ("delay", "..4", 5),
            ("speed", "1..2.5", 7),
        ):
            search = page.get_by_label(f"Filter by {field}")
            await search.fill(text)
            await expect(page.locator(ROWS)).to_have_count(count)
            await search.fill("")
            await expect(page.locator(ROWS)).to_have_count(100)
        await page.get_by_label("Filter by cancelled").select_option("true")
        await expect(page.locator(ROWS)).to_have_count(22)
        await page.get_by_label("Filter by delay").fill("soon")
        await expect(page.locator("#refused")).to_have_text("The field delay is int; the parameter is not.")
        await page.get_by_label("Filter by delay").fill("0..50")
        await expect(page.locator("#refused")).to_be_hidden()
        await expect(page.locator(ROWS)).to_have_count(8)

        hostile_text = "<img src=x onerror=alert(1)>"
        await stream.events(
            {"flight": "UA007", "carrier": hostile_text, "delay": 8, "cancelled": True},
            {
                "flight": "DL014",
                "carrier": "DL",
                "delay": 99,
                "cancelled": True,
            },  # it fits the filters no more
            {"flight": "AA001", "carrier": None, "delay": 50, "cancelled": True},
        )
        await expect(page.locator("#rows tbody th")).to_have_text(
            ["AA001", "DL000", "DL028", "DL042", "UA007", "UA021", "UA035", "UA049"]
        )
        await expect(page.locator(ROWS).nth(4)).to_contain_text(hostile_text)
        await shot(page, "views-filtered")
        await page.get_by_role("button", name="Use another key").click()
        await expect(page.locator("#content")).to_be_hidden()
        await enter(page, OTHER_KEY)
        await expect(page.locator("#views tbody th")).to_have_text(["late"])
        await expect(page.locator("#name")).to_have_text("late")


async def test_a_view_that_ends_and_begins_again_is_shown_again(
    stream: ViewStream, tmp_path: Path, page: Page
) -> None:
    await stream.events({"flight": "UA1", "delay": 1})
    async with viewing(stream, tmp_path) as (client, _):
        port = int(client.url.rpartition(":")[2])
        await page.goto(client.url)
        await enter(page, KEY)
        await expect(page.locator(ROWS)).to_have_count(1)
    await expect(page.locator("#stale")).to_contain_text("view does not respond")
    await stream.events({"flight": "UA2", "delay": 2})
    async with viewing(stream, tmp_path, view_port=port):
        await expect(page.locator(ROWS)).to_have_count(2)
        await expect(page.locator("#stale")).to_be_hidden()
