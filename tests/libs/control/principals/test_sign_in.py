"""Sessions, links and the page to sign in, over HTTP, with a copy of the principals that the test writes."""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from tests.support.observe_principal import as_principal, principal

from hifi.control.principals import sessions
from hifi.control.principals.gate import Gate, Needs
from hifi.control.principals.person import Person, ProviderSession
from hifi.control.principals.principal import Principal, Principals, RevokedPerson, Role
from hifi.control.principals.sign_in import SignIn, link_response
from hifi.runtime.clock import monotonic_s, now_us
from hifi.runtime.console.console_pages import ConsolePages, navigation
from hifi.runtime.http import server
from hifi.runtime.http.problem import Problem
from hifi.runtime.http.trusted_hosts import TrustedHosts

NEEDS = {"page": Needs(Role.VIEWER, fresh=False), "change": Needs(Role.OPERATOR), "link": Needs(Role.VIEWER)}


def person(name: str) -> Person:
    """A viewer whom a provider signed in."""
    of_provider = Principal(f"oidc:{name}", Role.VIEWER, (), "", None, "test", 0)
    return Person(of_provider.name, (of_provider,), sessions.SESSION_S, ProviderSession(name))


class Copy:
    """A copy of the topic, as the test has it."""

    def __init__(self) -> None:
        self.principals = Principals()
        self.read = True
        self.fresh = True

    def create(self, principal: Principal) -> None:
        self.principals.take(principal.name.encode(), principal.record().value, 0)

    def revoke(self, name: str) -> None:
        self.principals.take(name.encode(), None, 0)


class Site:
    """A service with a page, a change and links."""

    def __init__(self) -> None:
        self.copy = Copy()
        self.gate = Gate(self.copy)
        self.url = ""

    def app(self) -> Starlette:
        async def answer(_: Request, principal: Principal) -> Response:
            return PlainTextResponse(principal.name)

        async def link(request: Request, principal: Principal) -> Response:
            return link_response(self.gate, request, principal)

        async def problem(_: Request, error: Exception) -> Response:
            assert isinstance(error, Problem)
            return error.response()

        sign_in = SignIn(self.gate, ConsolePages("hifi_observe.web", "test", navigation("", None, "/api")))
        return Starlette(
            routes=[
                sign_in.page("/", "page", answer, NEEDS),
                sign_in.page("/deep/{pipe}", "page", answer, NEEDS),
                sign_in.api("/change", "change", answer, NEEDS, "POST"),
                sign_in.api("/link", "link", link, NEEDS, "POST"),
                *sign_in.routes(),
            ],
            exception_handlers={Problem: problem},
            middleware=[Middleware(TrustedHosts)],
        )

    @property
    def origin(self) -> dict[str, str]:
        return {"origin": self.url}

    async def sign_in(self, session: aiohttp.ClientSession, **fields: str) -> aiohttp.ClientResponse:
        async with session.post(
            self.url + "/sign-in", data=fields, headers=self.origin, allow_redirects=False
        ) as answer:
            await answer.read()
            return answer


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    signed_in_site = Site()
    signed_in_site.copy.create(principal("ann", Role.OPERATOR))
    sock = server.listen("127.0.0.1", 0)
    async with server.serve(signed_in_site.app(), sock, drain_s=1):
        signed_in_site.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        yield signed_in_site


@pytest.fixture
async def browser() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        yield session


async def status(
    session: aiohttp.ClientSession, method: str, url: str, headers: dict[str, str] | None = None
) -> int:
    async with session.request(method, url, headers=headers, allow_redirects=False) as answer:
        return answer.status


async def test_a_token_begins_a_session_whose_cookie_no_script_and_no_other_site_gets(
    site: Site, browser: aiohttp.ClientSession
) -> None:
    assert await status(browser, "GET", site.url) == 303
    answer = await site.sign_in(browser, token="token-of-ann", next="/deep/x?a=1")
    assert (answer.status, answer.headers["location"]) == (303, "/deep/x?a=1")
    cookie = answer.headers["set-cookie"].lower()
    assert {"httponly", "samesite=lax", "path=/"} <= set(cookie.split("; "))
    assert "secure" not in cookie
    assert "token-of-ann" not in cookie
    assert await status(browser, "GET", site.url) == 200


async def test_the_cookie_is_secure_where_the_page_is(site: Site, browser: aiohttp.ClientSession) -> None:
    headers = {"origin": site.url.replace("http:", "https:")}
    async with browser.post(
        site.url + "/sign-in", data={"token": "token-of-ann"}, headers=headers, allow_redirects=False
    ) as answer:
        assert "secure" in answer.headers["set-cookie"].lower().split("; ")


@pytest.mark.parametrize("fields", [{}, {"token": ""}, {"token": "wrong"}, {"code": "wrong"}, {"code": ""}])
async def test_without_a_valid_token_or_code_there_is_no_session(
    site: Site, browser: aiohttp.ClientSession, fields: dict[str, str]
) -> None:
    answer = await site.sign_in(browser, **fields)
    assert (answer.status, "set-cookie" in answer.headers) == (401, False)


async def test_a_change_with_a_session_names_its_page(site: Site, browser: aiohttp.ClientSession) -> None:
    await site.sign_in(browser, token="token-of-ann")
    change = site.url + "/change"
    assert await status(browser, "POST", change) == 403
    for origin in ("http://127.0.0.1:1", "null", "https://evil.example"):
        assert await status(browser, "POST", change, {"origin": origin}) == 403
    assert await status(browser, "POST", change, site.origin) == 200
    async with aiohttp.ClientSession() as program:
        assert await status(program, "POST", change, as_principal("ann")) == 200


async def test_a_form_of_another_site_signs_nobody_in(site: Site, browser: aiohttp.ClientSession) -> None:
    for headers in ({}, {"origin": "https://evil.example"}, {"origin": "null"}):
        async with browser.post(
            site.url + "/sign-in", data={"token": "token-of-ann"}, headers=headers, allow_redirects=False
        ) as answer:
            assert (answer.status, "set-cookie" in answer.headers) == (403, False)


async def test_a_session_ends_with_its_principal_and_has_the_role_of_now(
    site: Site, browser: aiohttp.ClientSession
) -> None:
    await site.sign_in(browser, token="token-of-ann")
    change = site.url + "/change"
    site.copy.create(principal("ann", Role.VIEWER))
    assert await status(browser, "POST", change, site.origin) == 403
    site.copy.revoke("ann")
    assert await status(browser, "POST", change, site.origin) == 401
    assert await status(browser, "GET", site.url) == 303


async def test_a_session_ends_when_its_token_expires_and_at_the_end_of_its_own_time(
    site: Site, browser: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.copy.create(principal("bob", Role.VIEWER, expires_us=now_us() + 300_000))
    await site.sign_in(browser, token="token-of-bob")
    assert await status(browser, "GET", site.url) == 200
    async with asyncio.timeout(10):
        while await status(browser, "GET", site.url) != 303:
            await asyncio.sleep(0.05)
    await site.sign_in(browser, token="token-of-ann")
    assert await status(browser, "GET", site.url) == 200
    later_s = monotonic_s() + sessions.SESSION_S
    monkeypatch.setattr(sessions, "monotonic_s", lambda: later_s)
    assert await status(browser, "GET", site.url) == 303


async def test_who_signs_out_is_signed_out_everywhere_the_cookie_went(
    site: Site, browser: aiohttp.ClientSession
) -> None:
    await site.sign_in(browser, token="token-of-ann")
    (cookie,) = browser.cookie_jar
    stolen = {"cookie": f"{cookie.key}={cookie.value}"}
    async with aiohttp.ClientSession() as thief:
        assert await status(thief, "GET", site.url, stolen) == 200
        assert await status(browser, "POST", site.url + "/sign-out", site.origin) == 303
        assert await status(thief, "GET", site.url, stolen) == 303
    assert await status(browser, "GET", site.url) == 303


async def test_a_session_makes_no_link_that_would_outlive_it(
    site: Site, browser: aiohttp.ClientSession
) -> None:
    await site.sign_in(browser, token="token-of-ann")
    assert await status(browser, "POST", site.url + "/link", site.origin) == 403
    assert await status(browser, "POST", site.url + "/link", as_principal("ann")) == 200


async def test_a_link_signs_in_once_within_an_hour(
    site: Site, browser: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def code() -> str:
        async with browser.post(site.url + "/link", headers=as_principal("ann")) as answer:
            path, _, fragment = (await answer.json())["path"].partition("#")
            assert path == "/sign-in"
            return str(fragment)

    used_code, expired_code = await code(), await code()
    assert (await site.sign_in(browser, code=used_code)).status == 303
    assert await status(browser, "GET", site.url) == 200
    assert (await site.sign_in(browser, code=used_code)).status == 401
    later_s = monotonic_s() + sessions.LINK_S
    monkeypatch.setattr(sessions, "monotonic_s", lambda: later_s)
    assert (await site.sign_in(browser, code=expired_code)).status == 401


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "/a\r\nset-cookie: x=y",
        "evil",
        "",
        "/\t/evil.example",
        "//[",
        "//[x",
    ],
)
async def test_the_page_after_signing_in_is_of_this_server(
    site: Site, browser: aiohttp.ClientSession, target: str
) -> None:
    answer = await site.sign_in(browser, token="token-of-ann", next=target)
    assert (answer.status, answer.headers["location"]) == (303, "/")
    async with browser.get(site.url + "/sign-in", params={"next": target}) as page:
        assert 'name="next" value="/"' in await page.text()


async def test_an_unread_topic_lets_nobody_in_and_a_stale_copy_only_readers(
    site: Site, browser: aiohttp.ClientSession
) -> None:
    await site.sign_in(browser, token="token-of-ann")
    site.copy.fresh = False
    assert await status(browser, "GET", site.url) == 200
    assert await status(browser, "POST", site.url + "/change", site.origin) == 503
    site.copy.read = False
    assert await status(browser, "GET", site.url) == 503
    assert (await site.sign_in(browser, token="token-of-ann")).status == 503


async def test_a_limited_role_opens_the_pages_of_its_pipes_only(
    site: Site, browser: aiohttp.ClientSession
) -> None:
    site.copy.create(principal("bob", Role.ADMIN, "flights"))
    await site.sign_in(browser, token="token-of-bob")
    assert await status(browser, "GET", site.url + "/deep/flights") == 200
    assert await status(browser, "GET", site.url + "/deep/orders") == 403


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Basic dG9rZW4=", "Bearer token-of-bob", "bearer token-of-ann x"]
)
async def test_a_wrong_header_is_refused_even_with_a_session(
    site: Site, browser: aiohttp.ClientSession, header: str
) -> None:
    await site.sign_in(browser, token="token-of-ann")
    assert (
        await status(browser, "POST", site.url + "/change", {**site.origin, "authorization": header}) == 401
    )


def test_sessions_are_bounded_and_the_oldest_end_first() -> None:
    copy = Copy()
    all_sessions = sessions.Sessions(lambda: copy.principals)
    owners = [principal(f"p-{number}", Role.VIEWER) for number in range(1001)]
    for owner in owners:
        copy.create(owner)
    first_session, *later_sessions = map(all_sessions.begin, owners)
    assert all_sessions.principals(first_session, now_us()) == ()
    for owner, session in zip(owners[1:], later_sessions, strict=True):
        assert all_sessions.principals(session, now_us()) == (owner,)


def test_nobody_ends_the_sessions_or_links_of_others_by_many_of_his_own() -> None:
    copy = Copy()
    all_sessions = sessions.Sessions(lambda: copy.principals)
    ann, bob = principal("ann", Role.ADMIN), principal("bob", Role.VIEWER)
    for owner in (ann, bob):
        copy.create(owner)
    signed_in = person("cem")
    kept_sessions = [all_sessions.begin(owner) for owner in (ann, signed_in)]
    link = all_sessions.new_link(ann)
    for busy_owner in (bob, person("dan")):
        own_sessions = [all_sessions.begin(busy_owner) for _ in range(1001)]
        assert all_sessions.principals(own_sessions[-101], now_us()) == ()
        assert all_sessions.principals(own_sessions[-100], now_us()) != ()
    for _ in range(1001):
        all_sessions.new_link(bob)
    principals_of_kept = [all_sessions.principals(session, now_us()) for session in kept_sessions]
    assert principals_of_kept == [(ann,), signed_in.principals]
    assert all_sessions.redeem(link, now_us()) == ann


def test_a_session_that_a_revocation_ended_stays_so_when_the_person_is_restored() -> None:
    copy = Copy()
    all_sessions = sessions.Sessions(lambda: copy.principals)
    bob = person("bob")
    revocation = RevokedPerson(bob.name, "root", 7).record().value
    for offset in (10, 20):
        session, other_session = all_sessions.begin(bob), all_sessions.begin(person("ann"))
        assert all_sessions.principals(session, now_us()) == bob.principals
        copy.principals.take(bob.name.encode(), revocation, offset)
        copy.principals.take(bob.name.encode(), None, offset + 1)
        assert all_sessions.principals(session, now_us()) == (), "no request came between"
        assert all_sessions.principals(other_session, now_us()) != ()
    session = all_sessions.begin(bob)
    copy.principals = Principals()  # read anew, after compaction removed what was restored
    assert all_sessions.principals(session, now_us()) == bob.principals
