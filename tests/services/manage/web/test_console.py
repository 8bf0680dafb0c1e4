"""The console in a real browser, on the real service and a real Kafka: what people do there, and who may do it."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Page, expect
from tests.support.browser import SHOTS, needs_browser, page_without_errors
from tests.support.manage.managed_stream import Managed, body

from hifi.control.principals.principal import Role
from hifi.control.rollout_status import RolloutState, RolloutStatus
from hifi.delivery.destination_state import DestinationName, DestinationState, StateChange, state_record

REFUSED = r"Failed to load resource: .* status of 4\d\d"
"""What the browser logs about each response that refuses something."""
pytestmark = [needs_browser, pytest.mark.timeout(300)]


@pytest.fixture
async def page() -> AsyncIterator[Page]:
    async with page_without_errors(REFUSED) as page:
        yield page


async def sign_in(page: Page, managed: Managed, name: str) -> None:
    await page.get_by_label("Token").fill(managed.tokens[name])
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.locator("#sign-out")).to_contain_text(name)


async def check_page(page: Page, name: str) -> None:
    """The page is accessible in both themes, and not wider than a phone."""
    for theme, width in (("light", 1280), ("dark", 390)):
        await page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
        await page.set_viewport_size({"width": width, "height": 900})
        await page.wait_for_load_state()
        audit = await Axe().run(page)
        assert audit.violations_count == 0, f"{name}, {theme}, {width}: {audit.generate_report()}"
        assert await page.evaluate("document.documentElement.scrollWidth") <= width, f"{name} is wider"
        if SHOTS:
            await page.screenshot(path=Path(SHOTS) / f"{name}-{theme}-{width}.png", full_page=True)
    await page.set_viewport_size({"width": 1280, "height": 900})


async def test_a_pipe_is_declared_corrected_published_rolled_back_and_deleted_in_the_browser(
    managed: Managed, page: Page
) -> None:
    url = managed.urls[0].removesuffix("/api/v1")
    response = await page.goto(url + "/")
    assert response is not None
    assert "unsafe" not in response.headers["content-security-policy"]
    await check_page(page, "sign-in")
    await page.get_by_label("Token").fill("wrong")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.locator("#why")).to_contain_text("unknown, has expired or was revoked")
    await sign_in(page, managed, "ann")
    assert managed.tokens["ann"] not in page.url

    await page.get_by_role("link", name="Declare a new pipe").click()
    editor = page.get_by_label("YAML of the pipe")
    await editor.fill("pipe: flights\nsource:\n  keys: [{env: K}]\ndestinations:\n  - name: crm\n    u")
    await expect(page.locator("#keys")).to_contain_text("url")
    await editor.press("Control+Space")
    await editor.press_sequentially("nowhere")
    await page.get_by_role("button", name="Publish").click()
    problem = page.locator("#problems li").first
    await expect(problem).to_contain_text("Line 6")
    await expect(page.locator("#editor-state")).to_have_text("Nothing was changed: 1 problem.")
    await expect(page.locator("#lines b")).to_have_text("6")
    await check_page(page, "problem")
    await problem.get_by_role("button").click()
    line = "element => element.value.slice(0, element.selectionStart).split('\\n').length"
    assert await editor.evaluate(line) == 6
    await editor.fill((await editor.input_value()).replace("nowhere", "http://127.0.0.1:9/"))
    await page.get_by_role("button", name="Check").click()
    await expect(page.locator("#editor-state")).to_contain_text("No problems")
    await check_trial(page)
    await page.get_by_role("button", name="Publish").click()
    await expect(page).to_have_url(url + "/pipes/flights")
    await expect(page.locator("#state")).to_contain_text("by ann")
    await expect(page.locator("#rollout")).to_contain_text("waiting")
    await expect(editor).to_have_value(re.compile("url: http://127.0.0.1:9/"))
    await rename(page, "crm", "erp")
    await expect(page.locator("#editor-state")).to_contain_text("Published as declaration")
    await expect(page.locator("#versions tbody tr")).to_have_count(2)

    # Another author publishes meanwhile: their version is not overwritten.
    current_view = await managed.until(0, "GET", "/pipes/flights", 200)
    change = await managed.call(0, "PUT", "/pipes/flights", body("theirs"), current_view.etag)
    assert change.status == 200
    await rename(page, "erp", "mine")
    await expect(page.locator("#editor-state")).to_contain_text("ann changed flights")
    await page.get_by_role("button", name="Show their version").click()
    await expect(editor).to_have_value(re.compile("name: theirs"))

    await page.locator("#versions tbody tr").nth(1).get_by_role("button", name="Show").click()
    await expect(page.locator("#version .minus", has_text="crm")).to_be_visible()
    await expect(page.locator("#version .plus", has_text="erp")).to_be_visible()
    await managed.write(
        managed.topics.destinations,
        state_record(
            DestinationName("flights", "theirs"), StateChange(DestinationState.PARKED, "egest", "down", 1)
        ),
    )
    await expect(page.locator("#destinations tbody")).to_contain_text("parked")
    await check_page(page, "pipe")
    await page.get_by_role("button", name="Roll back to declaration").click()
    await expect(page.locator("#editor-state")).to_contain_text("Rolled back")
    await expect(editor).to_have_value(re.compile("name: erp"))
    await check_rollout(page, managed)
    await check_pause(page)

    await page.get_by_role("link", name="Audit").click()
    await expect(page.locator("#audit tbody")).to_contain_text("roll back to")
    await check_page(page, "audit")
    await page.get_by_role("link", name="Principals").click()
    await expect(page.locator("#principals tbody")).to_contain_text("ann")
    await check_page(page, "principals")
    await page.get_by_role("link", name="Declarations").click()
    await check_page(page, "pipes")
    await page.get_by_role("link", name="flights").click()
    for typed_name, is_kept in (("other", True), ("flights", False)):
        await page.get_by_role("button", name="Delete this pipe").click()
        await page.get_by_label("Name of the pipe").fill(typed_name)
        await page.get_by_role("button", name="Delete", exact=True).click()
        if is_kept:
            await expect(page.locator("#editor-state")).to_contain_text("Not deleted")
    await expect(page).to_have_url(url + "/")
    await expect(page.locator("#declarations tbody tr")).to_have_count(0)
    await page.get_by_role("button", name="Sign out").click()
    assert await page.evaluate("sessionStorage.length") == 0


async def check_trial(page: Page) -> None:
    """A test event shows each destination's request before anything is published."""
    await page.get_by_text("Test event").click()
    await page.get_by_label("Data of the event").fill('{"from": "BER"}')
    await page.get_by_role("button", name="Try").click()
    await expect(page.locator("#try-state")).to_have_text("1 destination. Nothing was sent.")
    request = page.get_by_role("region", name="Request to crm")
    await expect(request).to_contain_text("ce-type: flights.test")
    await expect(request).to_contain_text('{"from":"BER"}')
    await check_page(page, "trial")
    await page.get_by_label("Data of the event").fill("{")
    await page.get_by_role("button", name="Try").click()
    await expect(page.locator("#try-state")).to_contain_text("not JSON")


async def rename(page: Page, before: str, after: str) -> None:
    editor = page.get_by_label("YAML of the pipe")
    await editor.fill((await editor.input_value()).replace(f"name: {before}", f"name: {after}"))
    await page.get_by_role("button", name="Publish").click()


async def check_rollout(page: Page, managed: Managed) -> None:
    """The buttons follow the rollout's state."""
    number = (await managed.call(0, "GET", "/pipes/flights")).content["declared"]["number"]
    status = RolloutStatus("flights", number, "ann", RolloutState.RAMPING, 1, 1000, "judging", 1)
    await managed.write(managed.control.rollouts, status.record())
    await expect(page.locator("#rollout")).to_contain_text("ramping, 10 % of keys")
    await page.get_by_role("button", name="Pause", exact=True).click()
    await expect(page.locator("#editor-state")).to_contain_text("Asked to pause")
    await page.get_by_role("button", name="Force the next step").click()
    await expect(page.locator("#editor-state")).to_contain_text("Asked to force")
    async with asyncio.timeout(15):
        while (await managed.call(0, "GET", "/audit")).content["entries"][0]["what"] != "force the rollout":
            await asyncio.sleep(0.1)


async def check_pause(page: Page) -> None:
    """Only what changes the state is offered, and the versions show who changed it."""
    await expect(page.get_by_role("button", name="Resume the pipe")).to_be_disabled()
    await page.get_by_role("button", name="Pause the pipe").click()
    await expect(page.locator("#editor-state")).to_contain_text("Declared paused as declaration")
    await expect(page.locator("#state")).to_contain_text("declared paused")
    await expect(page.locator("#versions tbody tr").first).to_contain_text("paused")
    await expect(page.get_by_role("button", name="Pause the pipe")).to_be_disabled()
    await page.get_by_role("button", name="Resume the pipe").click()
    await expect(page.locator("#editor-state")).to_contain_text("Declared active as declaration")


@pytest.mark.more
async def test_a_pipe_declared_by_file_and_a_viewer_change_nothing(managed: Managed, page: Page) -> None:
    url = managed.urls[0].removesuffix("/api/v1")
    await managed.create("vic", Role.VIEWER)
    creation = await managed.call(0, "PUT", "/pipes/flights?origin=file", body("crm"), {"if-none-match": "*"})
    assert creation.status == 201
    await managed.until(0, "GET", "/me", 200, by="vic")
    await page.goto(url + "/pipes/flights")
    await sign_in(page, managed, "ann")
    await expect(page.locator("#by-file")).to_contain_text("hifi apply")
    await expect(page.get_by_label("YAML of the pipe")).not_to_be_editable()
    await expect(page.get_by_role("button", name="Publish")).to_be_disabled()
    await page.get_by_role("button", name="Sign out").click()
    await sign_in(page, managed, "vic")
    await page.goto(url + "/pipes/flights")
    await expect(page.get_by_label("YAML of the pipe")).not_to_be_editable()
    await expect(page.get_by_role("button", name="Publish")).to_be_hidden()
    await expect(page.locator("[data-kind=pause]")).to_be_hidden()
    await expect(page.get_by_role("button", name="Pause the pipe")).to_be_hidden()
    assert (await managed.call(0, "GET", "/principals", by="vic")).status == 403
    async with aiohttp.ClientSession() as session, session.get(url + "/static/..%2fconsole.py") as answer:
        assert answer.status == 404
