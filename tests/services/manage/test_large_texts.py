"""While the text of a pipe is read that takes long, other requests are answered."""

import asyncio
import threading
from typing import Any

import aiohttp
import pytest
from tests.services.manage.test_write_keys import State, served
from tests.support.observe_principal import as_principal

from hifi_manage.pipe_text import MAX_VALUES, TextProblem
from hifi_manage.web import api

LARGEST = b"pipe: a\nx: [" + b"1," * (MAX_VALUES - 10) + b"1]\n"
WITHIN_S = 100


async def test_requests_are_answered_while_the_largest_text_is_read() -> None:
    async with (
        served(State()) as url,
        aiohttp.ClientSession(url.removesuffix("pipes"), headers=as_principal("admin")) as session,
        asyncio.timeout(WITHIN_S),
    ):

        async def check() -> list[str]:
            async with session.post("check", data=LARGEST) as answer:
                assert answer.status == 200, await answer.text()
                return [problem["where"] for problem in (await answer.json())["problems"]]

        check_task, answered_count = asyncio.create_task(check()), 0
        while not check_task.done():
            async with session.get("me") as answer:
                assert answer.status == 200
                answered_count += not check_task.done()
        assert "x" in await check_task
        assert answered_count > 5


async def test_when_many_texts_wait_a_further_one_is_asked_to_come_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    release, read_texts = threading.Event(), []

    def read_slowly(text: bytes, *_: Any, **__: Any) -> tuple[None, list[TextProblem]]:
        read_texts.append(text)
        release.wait(WITHIN_S)
        return None, []

    monkeypatch.setattr(api, "_MOST_TEXTS", 2)
    monkeypatch.setattr(api, "read_pipe", read_slowly)
    async with (
        served(State()) as url,
        aiohttp.ClientSession(url.removesuffix("pipes"), headers=as_principal("admin")) as session,
        asyncio.timeout(WITHIN_S),
    ):

        async def check() -> tuple[int, str | None]:
            async with session.post("check", data=b"pipe: a") as answer:
                await answer.read()
                return answer.status, answer.headers.get("retry-after")

        checks = [asyncio.create_task(check()) for _ in range(3)]
        finished_tasks, waiting_tasks = await asyncio.wait(checks, return_when=asyncio.FIRST_COMPLETED)
        assert [task.result() for task in finished_tasks] == [(503, "1")]
        assert len(read_texts) == 1, "one text at a time"
        release.set()
        assert {await task for task in waiting_tasks} == {(200, None)}
        assert await check() == (200, None)
