"""Answers of a provider that fails, lies or is another one, and addresses to which a console does not connect."""

import contextlib
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qs, urlsplit

import pytest
from aiohttp import web
from joserfc import jwk, jwt
from tests.support.oidc_console import console, fetched, new_browser

from hifi.runtime.clock import now_us

Answer = Callable[[web.Request], web.StreamResponse]
KEY = jwk.RSAKey.generate_key(2048, {"kid": "k"})


class Double:
    """A double of a provider, each of whose answers a test can replace."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []
        self.nonce = ""
        self.metadata: dict[str, Any] = {}
        self.claims: dict[str, Any] = {}
        self.user_info: dict[str, Any] = {"sub": "ann", "groups": ["admins"]}
        self.answers: dict[str, Answer] = {}

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path
        self.asked.append(path)
        if path in self.answers:
            return self.answers[path](request)
        if path == "/.well-known/openid-configuration":
            return web.json_response(
                {
                    "issuer": self.url,
                    "authorization_endpoint": f"{self.url}/authorize",
                    "token_endpoint": f"{self.url}/token",
                    "jwks_uri": f"{self.url}/keys",
                    "userinfo_endpoint": f"{self.url}/userinfo",
                    **self.metadata,
                }
            )
        if path == "/token":
            return web.json_response({"id_token": self.id_token(), "access_token": "access"})
        if path == "/userinfo":
            assert request.headers["authorization"] == "Bearer access"
            return web.json_response(self.user_info)
        return web.json_response({"keys": [KEY.as_dict(private=False)]})

    def id_token(self) -> str:
        now_s = now_us() // 1_000_000
        claims = {"iss": self.url, "aud": "hifi", "sub": "ann", "iat": now_s, "exp": now_s + 300}
        return jwt.encode({"alg": "RS256", "kid": "k"}, {**claims, "nonce": self.nonce, **self.claims}, KEY)

    def logout_token(self, **claims: Any) -> str:
        now_s = now_us() // 1_000_000
        events: dict[str, Any] = {"http://schemas.openid.net/event/backchannel-logout": {}}
        complete = {
            "iss": self.url,
            "aud": "hifi",
            "jti": "1",
            "iat": now_s,
            "exp": now_s + 60,
            "events": events,
        }
        return jwt.encode({"alg": "RS256", "kid": "k", "typ": "logout+jwt"}, complete | claims, KEY)


@asynccontextmanager
async def double() -> AsyncIterator[Double]:
    provider = Double()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", provider.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        provider.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield provider
    finally:
        await runner.cleanup()


async def sign_in(provider: Double, **settings: str) -> int:
    """Status of the console's answer to a sign-in; that to its begin, if that fails."""
    complete = {"ISSUER": provider.url, "CLIENT_ID": "hifi", "ROLES": "admin=admins", **settings}
    async with console(complete) as served_console, new_browser() as browser:
        status, _, headers = await fetched(browser, served_console.url + "/sign-in/oidc")
        if status != 303:
            return status
        query = parse_qs(urlsplit(headers["location"]).query)
        provider.nonce = query["nonce"][0]
        callback = f"{served_console.url}/sign-in/oidc/callback?code=c&state={query['state'][0]}"
        status, _, _ = await fetched(browser, callback)
        assert ((await fetched(browser, served_console.url))[0] == 200) is (status == 303)
        return status


async def test_groups_that_the_id_token_lacks_are_asked_for_and_those_in_it_count() -> None:
    async with double() as provider:
        assert await sign_in(provider) == 303
        assert "/userinfo" in provider.asked
        provider.asked.clear()
        provider.claims = {"groups": ["cooks"]}
        assert await sign_in(provider) == 403
        assert "/userinfo" not in provider.asked


@pytest.mark.parametrize("claims", [{"sub": "bob", "groups": ["admins"]}, {"groups": ["admins"]}, {}, []])
async def test_what_the_provider_says_of_somebody_else_is_refused(claims: Any) -> None:
    async with double() as provider:
        provider.user_info = claims
        assert await sign_in(provider) == 401


async def test_what_the_provider_adds_replaces_nothing_of_the_id_token() -> None:
    async with double() as provider:
        provider.user_info = {"sub": "ann", "groups": ["admins"], "exp": 1, "iss": "x"}
        assert await sign_in(provider) == 303


@pytest.mark.parametrize(
    "metadata",
    [
        {"issuer": "https://evil.example"},
        {"issuer": None},
        {"authorization_endpoint": None},
        {"token_endpoint": "file:///etc/passwd"},
        {"token_endpoint": 5},
        {"jwks_uri": ""},
        {"userinfo_endpoint": "javascript:alert(1)"},
        {"end_session_endpoint": "javascript:alert(1)"},
    ],
)
async def test_a_discovery_document_of_another_issuer_or_with_other_addresses_is_refused(
    metadata: dict[str, Any],
) -> None:
    async with double() as provider:
        provider.metadata = metadata
        assert await sign_in(provider) == 503
        assert set(provider.asked) == {"/.well-known/openid-configuration"}


ANSWERS: dict[str, Answer] = {
    "500": lambda _: web.Response(status=500),
    "429": lambda _: web.Response(status=429),
    "empty": lambda _: web.Response(),
    "no JSON": lambda _: web.Response(text="<html>"),
    "a list": lambda _: web.json_response([]),
    "2 MB": lambda _: web.Response(body=b" " * 2_000_000),
    "a redirect": lambda request: web.Response(
        status=302, headers={"location": f"http://{request.host}/elsewhere"}
    ),
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/token", "/keys", "/userinfo"])
async def test_an_answer_that_is_none_signs_nobody_in_and_is_no_error_of_the_console(
    path: str, answer: Answer
) -> None:
    async with double() as provider:
        provider.answers[path] = answer
        status = await sign_in(provider)
        assert status in (401, 503)
        assert (status == 503) or path in ("/token", "/userinfo")
        assert "/elsewhere" not in provider.asked


async def test_addresses_that_the_provider_names_are_judged_and_its_own_is_allowed() -> None:
    async with double() as provider, double() as private:
        with patch.dict(os.environ, {"HIFI_EGRESS_ALLOW": ""}):
            assert await sign_in(provider) == 303
            provider.metadata = {"userinfo_endpoint": f"{private.url}/userinfo"}
            assert await sign_in(provider) == 503
            assert private.asked == []
        with patch.dict(os.environ, {"HIFI_EGRESS_ALLOW": "oidc=loopback"}):
            assert await sign_in(provider) == 303
            assert private.asked == ["/userinfo"]


async def test_a_provider_whose_certificate_nobody_vouches_for_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    async with double() as provider:
        assert await sign_in(provider, CA_FILE=str(tmp_path / "ca.pem")) == 503
        assert await sign_in(provider, CA_FILE=str(tmp_path / "missing")) == 503
        assert provider.asked == []


async def backchannel_answer(url: str, token: str | None) -> tuple[int, str]:
    """The console's answer to a logout token that comes from the provider: without cookies and Origin."""
    form_fields = {} if token is None else {"logout_token": token}
    async with (
        new_browser() as anybody,
        anybody.post(f"{url}/sign-in/oidc/backchannel-logout", data=form_fields) as answer,
    ):
        assert answer.status == 503 or answer.headers["cache-control"] == "no-store"
        return answer.status, await answer.text()


async def test_whom_the_provider_signs_out_is_out_and_nobody_else() -> None:
    async with double() as provider, contextlib.AsyncExitStack() as browsers:
        settings = {"ISSUER": provider.url, "CLIENT_ID": "hifi", "ROLES": "admin=admins"}
        served_console = await browsers.enter_async_context(console(settings))

        async def signed_in(subject: str, session: str) -> Callable[[], Awaitable[bool]]:
            browser = await browsers.enter_async_context(new_browser())
            _, _, headers = await fetched(browser, served_console.url + "/sign-in/oidc")
            query = parse_qs(urlsplit(headers["location"]).query)
            provider.nonce = query["nonce"][0]
            provider.claims = {"sub": subject, "sid": session, "groups": ["admins"]}
            callback = f"{served_console.url}/sign-in/oidc/callback?code=c&state={query['state'][0]}"
            assert (await fetched(browser, callback))[0] == 303

            async def is_in() -> bool:
                return (await fetched(browser, served_console.url))[0] == 200

            return is_in

        ann, ann_elsewhere = await signed_in("ann", "s1"), await signed_in("ann", "s2")
        bob = await signed_in("bob", "s3")
        assert await backchannel_answer(served_console.url, provider.logout_token(sub="ann", sid="s1")) == (
            200,
            "",
        )
        assert [await ann(), await ann_elsewhere(), await bob()] == [False, True, True]
        for refused_token in (
            None,
            "",
            "no.token",
            provider.id_token(),
            provider.logout_token(sub="bob", aud="other"),
        ):
            status, text = await backchannel_answer(served_console.url, refused_token)
            assert (status, json.loads(text)["error"]) == (400, "invalid_request")
        provider.answers["/keys"] = lambda _: web.Response(status=500)
        assert (await backchannel_answer(served_console.url, provider.logout_token(sub="bob")))[0] == 503
        assert [await ann_elsewhere(), await bob()] == [True, True]
        provider.answers.clear()
        assert (await backchannel_answer(served_console.url, provider.logout_token(sub="ann")))[0] == 200
        assert [await ann_elsewhere(), await bob()] == [False, True]


async def test_a_console_without_a_provider_ends_no_session() -> None:
    async with console({}) as served_console:
        assert (await backchannel_answer(served_console.url, "a.b.c"))[0] == 400
