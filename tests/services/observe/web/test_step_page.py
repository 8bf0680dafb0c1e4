"""The page of a step shows what became of the events that it reads, as the API has it; other pages do not."""

import re
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import orjson
import pytest
from playwright.async_api import Page, expect
from tests.services.observe.steps.test_partition_account import events, headers, statement
from tests.services.observe.web.test_console import check_page
from tests.support.browser import UNANSWERED, needs_browser, page_without_errors
from tests.support.observe.stream_double import pipe
from tests.support.observe_principal import PRINCIPALS, VIEWER

from hifi.record.step_account import StepStatement
from hifi.runtime.clock import now_us
from hifi.runtime.health import Health
from hifi.runtime.http import server
from hifi_observe.kafka.principals_copy import TopicCopy
from hifi_observe.ledger.closing import ClosingRules
from hifi_observe.ledger.partition_ledger import PartitionLedger
from hifi_observe.live import figures
from hifi_observe.minutes import record_keys
from hifi_observe.observer import Observer
from hifi_observe.pipes import ObservedPipes
from hifi_observe.settings import ObserveSettings
from hifi_observe.steps.partition_account import PartitionAccount

STEP = "carrier-delays"
SOURCE = {
    "kind": "step",
    "from": "flights",
    "key": {"carrier": "string"},
    "window": {"tumbling": "1m"},
    "fields": {"n": "count(*)"},
}
PIPES = {"flights": pipe(), STEP: pipe(STEP, source=SOURCE)}
UNTIL_MS = 1_800_000_000_000
ROWS = """rows => rows.map((row) => {
  row.querySelectorAll("time").forEach((time) => time.remove());
  return row.innerHTML.replace(/>\\s+</g, "><").trim();
})"""
"""The rows of tables without times, which the browser shows in another zone than the server."""


def account(partition: int, folded: list[int], until_ms: int | None) -> PartitionAccount:
    """Of a partition with events 0 to 3, of which the step states some."""
    account = PartitionAccount(partition, StepStatement.begin(("flights",), {}))
    stated = statement(1, 4, folded, folded, partition)
    read = events({offset: headers(offset) for offset in range(4)})
    account.compare(stated, read, now_us(), complete=True, until_ms=until_ms)
    return account


def publish(observer: Observer, *accounts: PartitionAccount, **others: Any) -> None:
    """Have observe's own figures of partitions; `others` replaces entries of the accounts."""
    for partition, step_account in enumerate(accounts):
        live = figures.of_ledger(PartitionLedger(partition, ClosingRules()), now_us(), {})
        live["steps"] = {STEP: step_account.dump() | others}
        observer.stream.store.take(record_keys.live(partition), orjson.dumps(live))


@pytest.fixture
def observer(monkeypatch: pytest.MonkeyPatch) -> Observer:
    """Of a step and the pipe that it reads; Kafka does not answer."""
    observer = Observer(ObserveSettings(kafka="127.0.0.1:1", stream="s"), Health("observe", "i"))
    monkeypatch.setattr(TopicCopy, "read", True)
    monkeypatch.setattr(ObservedPipes, "names", lambda _: list(PIPES))
    monkeypatch.setattr(ObservedPipes, "exists", lambda _, name: name in PIPES)
    monkeypatch.setattr(ObservedPipes, "get", lambda _, name: PIPES.get(name))
    for known_principal in PRINCIPALS:
        observer.principals.principals.take(known_principal.name.encode(), known_principal.record().value, 0)
    return observer


@pytest.fixture
async def url(observer: Observer) -> AsyncIterator[str]:
    sock = server.listen("127.0.0.1", 0)
    async with server.serve(observer.application(), sock, drain_s=1):
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
        observer.stopping.set()


async def get(url: str) -> str:
    async with aiohttp.ClientSession(headers=VIEWER) as session, session.get(url) as answer:
        assert answer.status == 200
        return await answer.text()


async def test_a_step_says_what_it_did_with_each_event_and_how_to_explain_a_difference(
    observer: Observer, url: str
) -> None:
    publish(observer, account(0, [0, 1, 2, 3], UNTIL_MS + 1000), account(1, [0, 1, 3], UNTIL_MS))
    page = re.sub(r"\s+", " ", await get(f"{url}/pipes/{STEP}"))
    assert '<dd data-is="proven">4 events</dd>' in page
    assert '<dd data-is="lost" class="worse">1 events</dd>' in page
    assert '<dd data-is="unproven">4 events</dd>' in page
    assert '<dd data-is="until"><time datetime="2027-01-15T08:00:00Z"' in page, "the partition that is behind"
    assert '<th scope="row">folded</th><td>counted</td><td class="num">7</td>' in page
    assert "<div>0000000000000007:2</div>" in page
    assert f"<code>hifi step explain {STEP} <span>--partition 1 --offset 2</span></code>" in page
    assert "No events yet. They are results of the step" in re.sub(r"<.*?>", "", page)
    page_of_http = await get(f"{url}/pipes/flights")
    assert "Accounting" not in page_of_http
    assert "hifi send flights" in page_of_http


async def test_a_partition_of_which_nothing_is_compared_leaves_it_open_until_when(
    observer: Observer, url: str
) -> None:
    fresh = PartitionAccount(1, StepStatement.begin(("flights",), {}))
    publish(observer, account(0, [0, 1, 2, 3], UNTIL_MS), fresh)
    step = orjson.loads(await get(f"{url}/api/v1/pipes/{STEP}"))["step"]
    assert (step["proven"], step["lost"], step["until_ms"]) == (4, 0, None)
    assert [(row["partition"], row["first"], row["next"]) for row in step["partitions"]] == [
        (0, 0, 4),
        (1, 0, 0),
    ]
    page = await get(f"{url}/pipes/{STEP}")
    assert '<dd data-is="until">\N{EN DASH}</dd>' in page
    assert '<h3 id="differences-title" hidden>' in page


JOIN = {"joined": ["trains"], "verdicts": {"late": 2}}


async def test_a_join_names_both_pipes(observer: Observer, url: str) -> None:
    publish(observer, account(0, [0, 1, 2, 3], UNTIL_MS), **JOIN)
    page = await get(f"{url}/pipes/{STEP}")
    assert '<a href="/pipes/flights">flights</a> and <a href="/pipes/trains">trains</a>' in page
    assert (
        '<a href="/pipes/flights/dead?service=state&amp;reason=late">dead letter of flights</a>, '
        '<a href="/pipes/trains/dead?service=state&amp;reason=late">dead letter of trains</a>' in page
    )


@needs_browser
@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_it_is_accessible_and_follows_the_api_without_a_reload(observer: Observer, url: str) -> None:
    publish(observer, account(0, [0, 1, 2, 3], UNTIL_MS), account(1, [0, 1, 2, 3], UNTIL_MS))
    async with page_without_errors(UNANSWERED) as page:
        await page.set_extra_http_headers(VIEWER)
        await page.goto(f"{url}/pipes/{STEP}")
        lost = page.locator('#step [data-is="lost"]')
        await expect(lost).to_have_text("0 events")
        await expect(page.get_by_role("heading", name="Differences")).to_be_hidden()
        publish(observer, account(0, [0, 2], UNTIL_MS), account(1, [0, 1, 3], UNTIL_MS), **JOIN)
        await expect(lost).to_have_text("3 events")
        await expect(page.get_by_role("heading", name="Differences")).to_be_visible()
        await expect(page.locator("#differences code")).to_have_count(3)
        for rows in ("#verdicts tr", "#differences tr", "#compared tr"):
            assert await page.eval_on_selector_all(rows, ROWS) == await as_served(page, rows)
        for theme, width in (("light", 1280), ("dark", 400)):
            await check_page(page, f"{url}/pipes/{STEP}", "pipe-step", theme, width)
        await page.goto("about:blank")  # the page must not ask a server that has ended


async def as_served(page: Page, rows: str) -> Any:
    """The same rows of the page as the server renders it."""
    return await page.evaluate(
        f"""async (rows) => {{
          const page = await (await fetch(location.href)).text();
          return ({ROWS})([...new DOMParser().parseFromString(page, "text/html").querySelectorAll(rows)]);
        }}""",
        rows,
    )
