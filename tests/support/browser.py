"""A real browser for tests of pages."""

import contextlib
import os
import re
import shutil
from collections.abc import AsyncIterator
from typing import Any, Final

import pytest
from playwright.async_api import Browser, Page, async_playwright, expect

CHROMIUM: Final = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
LAUNCH: Final[dict[str, Any]] = {
    "executable_path": CHROMIUM,
    "args": ["--no-sandbox", "--disable-dev-shm-usage"],
}
"""Arguments of `chromium.launch`."""
SHOTS: Final = os.environ.get("HIFI_TEST_SHOTS")
"""Folder for screenshots."""
UNANSWERED: Final = "Failed to load resource|net::ERR_"
"""Pattern of the browser's messages about requests that are refused or get no answer."""
needs_browser: Final = pytest.mark.skipif(
    CHROMIUM is None, reason="no Chromium here: apt-get install chromium"
)


@contextlib.asynccontextmanager
async def browser() -> AsyncIterator[Browser]:
    """Chromium without a window, while the block runs. `expect` waits for a minute: a busy machine fails no test."""
    expect.set_options(timeout=60_000)
    async with async_playwright() as driver:
        chromium = await driver.chromium.launch(**LAUNCH)
        yield chromium
        await chromium.close()


@contextlib.asynccontextmanager
async def page_without_errors(ignored: str = "$^") -> AsyncIterator[Page]:
    """A page; in the end no script has failed, and the browser has logged no error that does not match `ignored`."""
    page_errors: list[str] = []
    console_errors: list[str] = []
    async with browser() as chromium:
        page = await chromium.new_page()
        page.on("pageerror", lambda error: page_errors.append(str(error)))
        page.on(
            "console",
            lambda message: console_errors.append(message.text) if message.type == "error" else None,
        )
        yield page
    assert page_errors == []
    assert [text for text in console_errors if not re.search(ignored, text)] == []
