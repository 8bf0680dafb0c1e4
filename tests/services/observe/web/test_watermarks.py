"""The API of watermarks: as JSON and as server-sent events, for those who may see the pipe."""

import aiohttp
import orjson
import pytest
from tests.services.observe.watermark.test_statement import part
from tests.support.observe_principal import PRINCIPALS, VIEWER, as_principal

from hifi.runtime.clock import now_us
from hifi.runtime.health import Health
from hifi.runtime.http import server
from hifi_observe.kafka.principals_copy import TopicCopy
from hifi_observe.observer import Observer
from hifi_observe.pipes import ObservedPipes
from hifi_observe.settings import ObserveSettings
from hifi_observe.watermark.statement import Times, state
from hifi_observe.web import watermark_answers

NAMES = ["orders", "flights"]


@pytest.fixture
async def observer(monkeypatch: pytest.MonkeyPatch) -> Observer:
    observer = Observer(ObserveSettings(kafka="127.0.0.1:1", stream="s"), Health("observe", "i"))
    monkeypatch.setattr(TopicCopy, "read", True)
    monkeypatch.setattr(ObservedPipes, "names", lambda _: NAMES)
    monkeypatch.setattr(ObservedPipes, "exists", lambda _, name: name in NAMES)
    monkeypatch.setattr(watermark_answers, "_INTERVAL_S", 0.1)
    for known_principal in PRINCIPALS:
        observer.principals.principals.take(known_principal.name.encode(), known_principal.record().value, 0)
    current_us = now_us()
    for name in NAMES:
        parts = {0: part(at=current_us, reached=current_us - 1_000_000)}
        observer.stream.watermarks.take(state(name, "crm", None, parts, 1, Times(), current_us))
    return observer


async def test_watermarks_are_shown_to_those_who_see_the_pipe(observer: Observer) -> None:
    sock = server.listen("127.0.0.1", 0)
    async with server.serve(observer.application(), sock, drain_s=1), aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{sock.getsockname()[1]}/api/v1/watermarks"

        async def pipes(path: str, headers: dict[str, str]) -> tuple[int, list[str]]:
            async with session.get(url + path, headers=headers) as answer:
                body = await answer.json(content_type=None)
                return answer.status, [row["pipe"] for row in body.get("watermarks", ())]

        assert await pipes("", VIEWER) == (200, ["flights", "orders"])
        assert await pipes("?colour=own", VIEWER) == (200, ["flights", "orders"])
        assert await pipes("/orders", VIEWER) == (200, ["orders"])
        assert (await pipes("/none", VIEWER))[0] == 404
        assert await pipes("", as_principal("other")) == (200, [])
        assert (await pipes("/orders", as_principal("other")))[0] in (403, 404)
        assert (await pipes("", {}))[0] == 401


@pytest.mark.slow
async def test_they_are_sent_each_second_until_the_stream_ends(
    observer: Observer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watermark_answers, "_STREAM_S", 0.5)
    sock = server.listen("127.0.0.1", 0)
    async with server.serve(observer.application(), sock, drain_s=1), aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{sock.getsockname()[1]}/api/v1/watermarks/orders"
        headers = VIEWER | {"accept": "text/event-stream"}
        async with session.get(url, headers=headers) as answer:
            assert answer.status == 200
            assert answer.content_type == "text/event-stream"
            events = (await answer.text()).removesuffix("\n\n").split("\n\n")
        assert len(events) >= 2
        for event in events:
            (row,) = orjson.loads(event.removeprefix("data: "))["watermarks"]
            assert (row["pipe"], row["verdict"]) == ("orders", "current")
        monkeypatch.setattr(watermark_answers, "_STREAMS", 0)
        async with session.get(url, headers=headers) as answer:
            assert answer.status == 503


async def test_they_end_whole_when_observe_stops(
    observer: Observer, caplog: pytest.LogCaptureFixture
) -> None:
    sock = server.listen("127.0.0.1", 0)
    async with aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{sock.getsockname()[1]}/api/v1/watermarks/orders"
        async with server.serve(observer.application(), sock, drain_s=60):
            answer = await session.get(url, headers=VIEWER | {"accept": "text/event-stream"})
            assert (await answer.content.readline()).startswith(b"data: ")
            observer.stopping.set()
        assert (await answer.text()).endswith("\n")  # the chunks ended, or this would fail
    assert not caplog.records


async def test_the_page_of_a_pipe_shows_them(observer: Observer) -> None:
    sock = server.listen("127.0.0.1", 0)
    async with server.serve(observer.application(), sock, drain_s=1), aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{sock.getsockname()[1]}/pipes/orders"
        async with session.get(url, headers=VIEWER) as answer:
            text = await answer.text()
    assert 'data-watermark="crm"' in text
    assert '<span class="badge good">current</span>' in text
