"""The console in a real browser: it agrees with the API and is accessible, in both themes and at two widths."""

import asyncio
import re
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import aiohttp
import orjson
import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, expect
from tests.support.browser import SHOTS, browser, needs_browser, page_without_errors
from tests.support.observe.stream_double import Stream, new_stream, pipe
from tests.support.observe_principal import VIEWER

from hifi.pipe.watched_field import watch_id
from hifi.record.headers import BREAKER, DESTINATION, DETAIL, ORIGIN, OUTCOME, POINTER, REASON, SERVICE
from hifi.record.identity import BACKFILL
from hifi.runtime.clock import now_us

pytestmark = [needs_browser, pytest.mark.timeout(300)]


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    # The server of a test ends before the page that follows its events.
    async with page_without_errors("ERR_(INCOMPLETE_CHUNKED_ENCODING|CONNECTION_REFUSED)") as page:
        await page.set_extra_http_headers(VIEWER)
        yield page


async def sign_in(page: Page, url: str, name: str) -> None:
    await page.set_extra_http_headers({})
    await page.goto(url + "/sign-in")
    await page.get_by_label("Token").fill(f"token-of-{name}")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.locator("#sign-out")).to_contain_text(name)


async def get_json(url: str, path: str):
    async with aiohttp.ClientSession(headers=VIEWER) as session, session.get(url + path) as response:
        return await response.json(content_type=None)


async def test_every_page_agrees_with_the_api_and_has_no_accessibility_violation(
    kafka: str, page: Page
) -> None:
    async with new_stream(kafka, pipe("flights", 1), pipe("orders", 1)) as stream:
        current_minute = now_us() // 60_000_000
        minutes = list(range(current_minute - 8, current_minute - 1))
        for minute in minutes:
            await stream.events(0, minute, 40, lose={"normalized": [3, 5]} if minute == minutes[5] else None)
        dead_letters = [stream.fields(0, minutes[3]) for _ in range(3)]
        await stream.write("raw", 0, dead_letters)
        refusal = {
            SERVICE: b"normalize",
            REASON: b"schema",
            DETAIL: b"a field is missing",
            POINTER: b"/from",
        }
        await stream.write("dead-letter", 0, [letter | refusal for letter in dead_letters])
        await stream.commit(0)
        async with stream.observing() as (observer, url):
            async with asyncio.timeout(120):
                while (
                    len(observer.stream.store.minutes["flights"]) < 7 or not observer.judge.notifier.notified
                ):
                    await asyncio.sleep(0.05)
            pages = {
                "overview": "/",
                "pipe": "/pipes/flights",
                "minute": f"/pipes/flights/minutes/{minutes[5]}",
                "dead": "/pipes/flights/dead",
                "alarms": "/alarms",
                "control": "/control",
                "runbooks": "/runbooks",
                "report": f"/report?month={datetime.fromtimestamp(minutes[5] * 60, UTC):%Y-%m}",
                "missing": "/pipes/nothing",
            }
            await page.set_extra_http_headers({})
            for theme, width in (("light", 1280), ("dark", 400)):
                await check_page(page, url + "/", "sign-in", theme, width)
            await sign_in(page, url, "operator")
            for name, path in pages.items():
                for theme, width in (("light", 1280), ("dark", 400)):
                    await check_page(page, url + path, name, theme, width)
            await check_figures(page, url, minutes[5])
            await check_breaker_and_runbook(page, url, stream)


@pytest.mark.more
async def test_both_distributions_of_a_watched_field_are_drawn_as_the_api_has_them(
    kafka: str, page: Page
) -> None:
    watch: list[dict[str, object]] = [
        {"field": "score", "bounds": [0.2, 0.5]},
        {"field": "home", "values": 2},
    ]
    enrich = {"fields": {"score": "double", "home": "string"}}
    watched_pipe = pipe("flights", enrich=enrich, watch=watch)
    async with new_stream(kafka, watched_pipe) as stream:
        last_minute = now_us() // 60_000_000 - 2
        scores = {"before": "0001112!!!", "now": "0122222222"}
        for minute in range(last_minute - 17, last_minute + 1):
            digits = scores["now" if minute > last_minute - 9 else "before"]
            watch_texts = [f"{watch_id(watched_pipe.watch)}:{score},JFK%3B" for score in digits * 12]
            await stream.events(0, minute, 120, watch=[text.encode() for text in watch_texts])
        await stream.commit(0)
        path = "/pipes/flights"
        async with stream.observing(observe_skew_window_minutes=10, observe_skew_events=100) as (_, url):
            async with asyncio.timeout(120):
                while not await shows_shares(page, url, path):
                    await asyncio.sleep(0.2)
            for theme, width in (("light", 1280), ("dark", 400)):
                await check_page(page, url + path, "pipe-watched", theme, width)
            await expect(page.locator('[data-field="score"] .badge')).to_have_text("drifted")
            await expect(page.locator('[data-field="home"] tbody th').first).to_have_text("JFK;")


async def shows_shares(page: Page, url: str, path: str) -> bool:
    """Whether a field has drifted, and all figures and bars of the page are those of the API."""
    fields = (await get_json(url, f"/api/v1{path}/skew"))["fields"]
    if not any(field["state"] == "drifted" for field in fields):
        return False
    await page.goto(url + path)
    for field in fields:
        rows = page.locator(f'[data-field="{field["field"]}"] tbody tr')
        expected = [
            [row["label"], *(f"{100 * row[name]:.1f} %" for name in ("window_share", "reference_share"))]
            for row in field["buckets"]
        ]
        shown_rows = [
            [await row.locator("th").inner_text(), *await row.locator("td.num").all_inner_texts()]
            for row in await rows.all()
        ]
        bars = await rows.locator("rect").evaluate_all("bars => bars.map((bar) => bar.width.baseVal.value)")
        shares = [100 * row[name] for row in field["buckets"] for name in ("window_share", "reference_share")]
        if shown_rows != expected or bars != pytest.approx(shares, abs=0.01):
            return False
    return True


async def check_page(page: Page, url: str, name: str, theme: str, width: int) -> None:
    await page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    await page.set_viewport_size({"width": width, "height": 900})
    if name == "missing":
        response = await page.request.get(url)
        assert response.status == 404
        return
    await page.goto(url)
    if name.startswith("pipe"):
        await page.wait_for_selector("#events .main-svg")
    if width == 1280:
        for region in await page.locator(".scroll").all():
            assert await region.evaluate("element => element.scrollWidth <= element.clientWidth"), (
                f"a table of {name} is cut"
            )
    axe_report = await Axe().run(page)
    assert axe_report.violations_count == 0, f"{name}, {theme}, {width}: {axe_report.generate_report()}"
    assert await page.evaluate("document.documentElement.scrollWidth") <= width, (
        f"{name} is wider than {width}"
    )
    if SHOTS:
        await page.screenshot(path=Path(SHOTS) / f"{name}-{theme}-{width}.png", full_page=True)


async def check_figures(page: Page, url: str, lossy_minute: int) -> None:
    await page.set_viewport_size({"width": 1280, "height": 900})
    await page.goto(f"{url}/pipes/flights/minutes/{lossy_minute}")
    shown_ids = await page.locator("#lost tbody th").all_inner_texts()
    expected = await get_json(url, f"/api/v1/pipes/flights/minutes/{lossy_minute}/lost")
    assert shown_ids == [lost_event["ce_id"] for lost_event in expected["lost"]]
    assert len(shown_ids) == 2
    await page.goto(url + "/")
    (row,) = [row for row in (await get_json(url, "/api/v1/pipes"))["pipes"] if row["pipe"] == "flights"]
    cells = page.locator('tr[data-pipe="flights"]')
    assert await cells.locator('[data-is="lost_hour"]').inner_text() == str(row["lost_hour"])
    assert "alarm" in await cells.locator('[data-is="state"]').inner_text()
    # Keyboard: the first Tab focuses the skip link.
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.textContent") == "Skip to content"
    await page.goto(url + "/pipes/flights/dead")
    assert await page.locator("tbody tr").count() == 3
    await check_replay(page)


async def check_breaker_and_runbook(page: Page, url: str, stream: Stream) -> None:
    """The breaker's text is updated without a reload, and an alarm links to its runbook."""
    await page.goto(url + "/pipes/flights")
    cell = page.locator('[data-destination="crm"] [data-is="breaker"]')
    await expect(cell).to_have_text("closed")
    fields = stream.fields(0, now_us() // 60_000_000)
    fields |= {DESTINATION: b"crm", OUTCOME: b"retry", REASON: b"timeout"}
    await stream.write("receipts", 0, [fields | {BREAKER: b"open:egest-1"}])
    await expect(cell).to_contain_text("open since 20")
    updated_text = await cell.inner_text()
    assert updated_text.endswith(", answer timeout")
    await page.reload()
    await expect(cell).to_have_text(updated_text)
    axe_report = await Axe().run(page)
    assert axe_report.violations_count == 0, axe_report.generate_report()
    await page.goto(url + "/alarms")
    await page.get_by_role("link", name="What to do about loss").first.click()
    await expect(page).to_have_url(url + "/runbooks#loss")
    await expect(page.get_by_role("heading", name="loss", exact=True)).to_be_in_viewport()


async def check_replay(page: Page) -> None:
    """Replays by keyboard alone, with the result in a status region for screen readers; repeating is harmless."""
    state = page.get_by_role("status").and_(page.locator("#replay-state"))
    await page.get_by_label("Which").focus()
    await page.keyboard.press("Tab")
    await page.keyboard.press("Enter")
    await expect(state).to_have_text("Select at least one dead letter first.")
    for key in ("Tab", "Tab", "Space", "Tab"):
        await page.keyboard.press(key)
    assert await page.locator("input[name=ids]:checked").count() == 1
    await page.get_by_role("button", name="Replay").focus()
    await page.keyboard.press("Enter")
    await expect(state).to_have_text("1 replayed.")
    assert await page.locator("[data-replayed]").all_inner_texts() == ["yes", "", ""]
    await page.get_by_label("Which").select_option("all")
    await page.get_by_role("button", name="Replay").click()
    await expect(state).to_have_text("2 replayed; 1 were replayed before.")
    await page.get_by_role("button", name="Replay").click()
    await expect(state).to_have_text("0 replayed; 3 were replayed before.")


@pytest.mark.more
async def test_the_overview_of_50_pipes_loads_about_as_fast_with_a_day_of_minutes_as_without(
    kafka: str, page: Page
) -> None:
    pipe_names = [f"pipe-{number}" for number in range(50)]
    async with (
        new_stream(kafka, *(pipe(name) for name in pipe_names)) as stream,
        stream.observing() as (observer, url),
    ):
        minute = now_us() // 60_000_000 - 2
        await stream.events(0, minute, 10, name="pipe-0")
        await stream.commit(0)
        async with asyncio.timeout(120):
            while minute not in observer.stream.store.minutes["pipe-0"]:
                await asyncio.sleep(0.05)

        async def fastest_s() -> float:
            took_s = []
            for _ in range(3):  # other load on the machine can slow a single run
                started_s = time.perf_counter()
                await page.goto(url + "/")
                assert await page.locator("tr[data-pipe]").count() == 50
                took_s.append(time.perf_counter() - started_s)
            return min(took_s)

        empty_s = await fastest_s()
        value = observer.stream.store.minutes["pipe-0"][minute]
        for name in pipe_names:
            for minutes_ago in range(1440):
                observer.stream.store.minutes[name][minute - minutes_ago] = value
                observer.stream.store.states[name][minute - minutes_ago] = "up"
        assert await fastest_s() < 4 * empty_s


async def test_events_are_shown_within_seconds_before_any_minute_has_closed(kafka: str, page: Page) -> None:
    async with (
        new_stream(kafka) as stream,
        stream.observing(observe_settle_s=300) as (_, url),
    ):
        await page.goto(url + "/pipes/flights")
        await expect(page.locator("#waiting")).to_contain_text("To see something here, send an event")
        minute = now_us() // 60_000_000
        await stream.events(0, minute, 40)
        await stream.events(1, minute, 2)
        await expect(page.locator("#waiting")).to_be_hidden(timeout=15_000)
        async with asyncio.timeout(30):
            while True:
                series = await get_json(url, "/api/v1/pipes/flights/series")
                # The newest minute may have begun after the events.
                delivered = dict(zip(series["minute"], series["delivered"], strict=True))
                if delivered.get(minute) == 42:
                    break
                await asyncio.sleep(0.05)
        row = series["minute"].index(minute)
        assert series["state"][row] == "provisional"
        assert series["lost"][row] is None
        await page.reload()
        await expect(page.locator("#minutes tbody tr").first).to_contain_text("provisional")
        for chart in ("recent-events", "recent-lag", "lag", "events", "parts"):
            await page.wait_for_selector(f"#{chart} .main-svg")
            titles = await page.locator(f"#{chart} .ytitle, #{chart} .xtitle").all_inner_texts()
            assert len(titles) == 2, f"{chart} has an axis without a unit: {titles}"
        await page.goto(url + "/")
        assert "provisional" in (await get_json(url, "/api/v1/pipes"))["pipes"][0]["states"][-2:]
        await expect(page.locator("#pipes svg.strip")).to_have_attribute(
            "aria-label", re.compile(r"\d provisional")
        )


@pytest.mark.more
async def test_the_progress_of_a_source_is_shown_with_units_and_updated(kafka: str, page: Page) -> None:
    async with new_stream(kafka) as stream, stream.observing() as (observer, url):
        minute = now_us() // 60_000_000 - 2
        rows = [stream.fields(0, minute) | {ORIGIN: BACKFILL} for _ in range(3)]
        await stream.write("raw", 0, rows)
        await stream.commit(0)

        async def tell(**changes: object) -> None:
            source = {
                "backfill": True, "done": 1_500_000, "remaining": 8_500_000, "read_per_s": 1_990.0,
                "arriving_per_s": 45.0, "limit_per_s": 2_000.0, "late": "",
            } | changes  # fmt: skip
            report = {"service": "collect", "epoch": "c" * 16, "sources": {"flights": source}}
            await stream.write("accepted", 0, [{}], [orjson.dumps(report)])

        async with asyncio.timeout(120):
            while minute not in observer.stream.store.minutes["flights"]:
                await asyncio.sleep(0.05)
        await tell()
        async with asyncio.timeout(30):
            while not (await get_json(url, "/api/v1/pipes/flights"))["now"]["source"]:
                await asyncio.sleep(0.05)
        for theme, width in (("light", 1280), ("dark", 400)):
            await tell()
            await check_page(page, f"{url}/pipes/flights", "pipe-backfill", theme, width)
        source_section = page.locator("#source")
        await tell()  # a report holds for some time only
        await expect(source_section.locator('[data-is="remaining"]')).to_have_text("8,500,000 events")
        await expect(source_section.locator('[data-is="end"]')).to_have_text("in 73 min")
        await expect(page.locator("#minutes thead")).to_contain_text("Backfill")
        await expect(page.locator("#minutes tbody tr").last).to_contain_text("3")
        await tell(remaining=0, late="enrich", backfill=True)
        await expect(source_section.locator('[data-is="end"]')).to_have_text("in 0 s, held back by enrich")
        await tell(remaining=0, backfill=False)
        await expect(source_section.locator('[data-is="state"]')).to_have_text("live")
        await page.goto("about:blank")  # the page must not ask a server that has ended


async def test_times_are_in_the_viewers_zone_with_utc_as_the_tooltip(kafka: str) -> None:
    async with (
        new_stream(kafka) as stream,
        stream.observing() as (observer, url),
        browser() as chromium,
    ):
        minute = now_us() // 60_000_000 - 2
        await stream.events(0, minute, 10)
        await stream.commit(0)
        async with asyncio.timeout(120):
            while minute not in observer.stream.store.minutes["flights"]:
                await asyncio.sleep(0.05)
        page = await (await chromium.new_context(timezone_id="Asia/Tokyo")).new_page()
        await sign_in(page, url, "viewer")
        await page.goto(url + "/pipes/flights")
        time_cell = page.locator(f'#minutes a[href$="/{minute}"] time')
        utc = time.strftime("%Y-%m-%d %H:%M", time.gmtime(minute * 60))
        tokyo = time.strftime("%Y-%m-%d %H:%M", time.gmtime(minute * 60 + 9 * 3600))
        await expect(time_cell).to_have_text(tokyo)
        await expect(time_cell).to_have_attribute("title", f"{utc} UTC")
