"""A token that a destination refuses is replaced once, for all requests that it was refused to."""

import asyncio

import pytest

from hifi_http.declaration import HttpOauth
from hifi_http.destination import access_token
from hifi_http.destination.access_token import AccessToken

OAUTH = HttpOauth.model_validate(
    {"token_url": "https://login.example/token", "client_id": "c", "client_secret": {"env": "S"}}
)


class TokenEndpoint:
    """Gives the next token each time that it may answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.asked = 0

        async def fetch_token(*_: object) -> tuple[str, float]:
            self.asked += 1
            number = self.asked
            await self.may_answer.wait()
            return f"token {number}", 3600.0

        monkeypatch.setattr(access_token, "fetch_token", fetch_token)
        monkeypatch.setattr(access_token, "RETRY_S", 0.0)


async def first_token() -> AccessToken:
    has_changed = asyncio.Event()
    token = AccessToken("p", OAUTH, lambda: "secret", has_changed.set)
    await asyncio.wait_for(has_changed.wait(), 10)
    return token


async def test_requests_that_are_refused_while_a_token_is_fetched_wait_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endpoint = TokenEndpoint(monkeypatch)
    token = await first_token()
    monkeypatch.setattr(access_token, "RETRY_S", 5.0)
    token._fetched_s -= 6.0
    endpoint.may_answer.clear()
    renewals = [asyncio.create_task(token.renew("token 1"))]
    while endpoint.asked < 2:
        await asyncio.sleep(0)
    renewals += [asyncio.create_task(token.renew("token 1")) for _ in range(2)]
    await asyncio.sleep(0)
    endpoint.may_answer.set()
    assert await asyncio.gather(*renewals) == [True, True, True]
    assert (token.value, endpoint.asked) == ("token 2", 2)
    await token.stop()


async def test_no_request_waits_for_a_token_that_nobody_fetches_any_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    TokenEndpoint(monkeypatch)
    token = await first_token()
    await token.stop()
    assert not await asyncio.wait_for(token.renew(token.value), 10)


async def test_an_error_of_whatever_kind_is_shown_and_another_token_is_fetched(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    endpoint = TokenEndpoint(monkeypatch)
    shown_errors: list[str] = []

    def secret() -> str:
        if not shown_errors:
            raise TypeError("geheim")
        return "secret"

    token = AccessToken("p", OAUTH, secret, lambda: shown_errors.append(token.error))
    async with asyncio.timeout(10):
        while not token.value:
            await asyncio.sleep(0)
    assert shown_errors[0] == "no access token: TypeError"
    assert (token.error, endpoint.asked) == ("", 1)
    await token.stop()
