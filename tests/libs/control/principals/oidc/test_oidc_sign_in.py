"""Sign-in on a console with a real OpenID Connect provider: npm's `oidc-provider`."""

import asyncio
import html
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import AsyncMock
from urllib.parse import parse_qs, urlencode, urlsplit

import aiohttp
import pytest
from tests.support.oidc_console import Console, console, fetched, new_browser
from tests.support.oidc_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    PUBLIC_CLIENT_ID,
    RunningProvider,
    answer_of_provider,
    installed_provider,
    running_provider,
)

from hifi.control.principals import sessions
from hifi.control.principals.oidc import id_token, login
from hifi.control.principals.oidc import provider as provider_requests
from hifi.control.principals.oidc.refusals import SignInRefused
from hifi.control.principals.oidc.settings import OidcSettings
from hifi.runtime import clock
from hifi_infra.ports import free_port

ROLES = "viewer=*,operator/flights=ops,operator/orders=sales,admin=admins"


@pytest.fixture(scope="session")
def oidc_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed_provider(tmp_path_factory.mktemp("oidc-provider"))


@pytest.fixture(scope="session")
def provider(oidc_program: Path) -> Iterator[RunningProvider]:
    with running_provider(oidc_program, f"http://127.0.0.1:{free_port()}") as running:
        yield running


@dataclass
class Site:
    """A console, its provider, and a person's browser."""

    console: Console
    provider: RunningProvider
    browser: aiohttp.ClientSession

    @property
    def url(self) -> str:
        return self.console.url

    async def sent_to_provider(self, next_page: str = "/") -> str:
        page = f"{self.url}/sign-in/oidc?{urlencode({'next': next_page})}"
        status, _, headers = await fetched(self.browser, page)
        assert status == 303
        return headers["location"]

    async def callback(self, person: str, next_page: str = "/") -> str:
        return await answer_of_provider(self.browser, await self.sent_to_provider(next_page), person)

    async def sign_in(self, person: str, next_page: str = "/") -> tuple[int, str]:
        """Status of the console's last answer, and where it leads or what it says."""
        status, text, headers = await fetched(self.browser, await self.callback(person, next_page))
        return status, headers.get("location", text)

    async def me(self) -> dict[str, object]:
        async with self.browser.get(self.url) as answer:
            assert answer.status == 200
            assert answer.url.path == "/"
            return dict(await answer.json())

    async def status(self, path: str = "/", method: str = "GET") -> int:
        headers = {"origin": self.url} if method != "GET" else None
        return (await fetched(self.browser, self.url + path, method, headers))[0]


@asynccontextmanager
async def signing_in(
    provider: RunningProvider, secret: Path, url: str = "", **other_variables: str
) -> AsyncIterator[Site]:
    """A console at the URL that the provider has of it; `other_variables`: settings."""
    if not secret.exists():
        secret.write_text(CLIENT_SECRET + "\n")
    settings = {
        "ISSUER": provider.issuer,
        "CLIENT_ID": CLIENT_ID,
        "CLIENT_SECRET_FILE": str(secret),
        "ROLES": ROLES,
        "NAME_CLAIM": "preferred_username",
        **other_variables,
    }
    port = urlsplit(provider.console).port or 0
    async with console(settings, port, url) as served_console, new_browser() as browser:
        yield Site(served_console, provider, browser)


@pytest.fixture
async def site(provider: RunningProvider, tmp_path: Path) -> AsyncIterator[Site]:
    async with signing_in(provider, tmp_path / "secret") as running_site:
        yield running_site


async def test_a_person_signs_in_and_comes_back_to_the_page_with_the_roles_of_the_groups(site: Site) -> None:
    status, text, _ = await fetched(site.browser, f"{site.url}/sign-in?next=/pipes/x")
    assert status == 200
    assert 'href="/sign-in/oidc?next=%2Fpipes%2Fx"' in text
    assert await site.sign_in("ann@ops+sales", "/pipes/x?a=1") == (303, "/pipes/x?a=1")
    principal = await site.me()
    assert (principal["name"], principal["role"], principal["pipes"]) == ("oidc:ann", "viewer", [])
    assert await site.status("/pipes/anything") == 200
    assert await site.status("/pipes/flights/change", "POST") == 200
    assert await site.status("/pipes/orders/change", "POST") == 200
    assert await site.status("/pipes/anything/change", "POST") == 403
    assert await site.status("/link", "POST") == 403  # it would outlive the session


async def test_the_request_has_state_nonce_and_a_challenge_and_the_session_a_cookie_for_no_script(
    site: Site,
) -> None:
    first, second = [parse_qs(urlsplit(await site.sent_to_provider()).query) for _ in range(2)]
    assert first["response_type"] == ["code"]
    assert first["code_challenge_method"] == ["S256"]
    for name in ("state", "nonce", "code_challenge"):
        assert first[name] != second[name]
        assert len(first[name][0]) >= 43
    callback = await site.callback("ann@admins")
    _, _, headers = await fetched(site.browser, callback)
    cookie = headers["set-cookie"].lower()
    assert {"httponly", "samesite=lax", "path=/"} <= set(cookie.split("; "))
    assert await site.status("/change", "POST") == 200


async def test_who_has_no_role_is_told_so_and_not_signed_in(
    provider: RunningProvider, tmp_path: Path
) -> None:
    async with signing_in(provider, tmp_path / "secret", ROLES="viewer/flights=ops") as site:
        status, text = await site.sign_in("eve@cooks")
        assert (status, "oidc:eve is in no group that has a role here" in text) == (403, True)
        assert await site.status() == 303


async def test_an_answer_counts_once_and_in_the_browser_that_asked(site: Site) -> None:
    async with new_browser() as other_browser:
        callback = await site.callback("ann@admins")
        assert (await fetched(other_browser, callback))[0] == 401
        assert (await fetched(site.browser, callback))[0] == 401  # it was used up by the other browser
        callback = await site.callback("ann@admins")
        assert (await fetched(site.browser, callback))[0] == 303
        assert (await fetched(site.browser, callback))[0] == 401
        assert (await fetched(other_browser, site.url))[0] == 303


@pytest.mark.parametrize(
    ("name", "value"),
    [("state", "wrong"), ("code", "wrong"), ("iss", "https://evil.example"), ("iss", ""), ("code", "")],
)
async def test_an_answer_that_was_changed_signs_nobody_in(site: Site, name: str, value: str) -> None:
    callback_url = urlsplit(await site.callback("ann@admins"))
    changed_query = {key: values[0] for key, values in parse_qs(callback_url.query).items()} | {name: value}
    if name == "iss" and not value:
        del changed_query["iss"]  # this provider always sends it
    url = f"{site.url}{callback_url.path}?{urlencode(changed_query)}"
    assert (await fetched(site.browser, url))[0] == 401
    assert await site.status() == 303


async def test_an_error_of_the_provider_is_shown_as_text(site: Site) -> None:
    url = await site.sent_to_provider()
    state = parse_qs(urlsplit(url).query)["state"][0]
    query = {
        "state": state,
        "error": "access_denied",
        "error_description": "<b>no",
        "iss": site.provider.issuer,
    }
    status, text, _ = await fetched(site.browser, f"{site.url}/sign-in/oidc/callback?{urlencode(query)}")
    assert status == 401
    assert "access_denied: &lt;b&gt;no" in text


async def test_a_sign_in_takes_ten_minutes_at_most(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    callback = await site.callback("ann@admins")
    later_s = clock.monotonic_s() + login.PENDING_S
    monkeypatch.setattr(login, "monotonic_s", lambda: later_s)
    assert (await fetched(site.browser, callback))[0] == 401


async def test_a_revoked_person_is_out_at_once_and_may_not_sign_in_until_restored(site: Site) -> None:
    await site.sign_in("ann@admins")
    assert await site.status() == 200
    site.console.copy.revoke_person("oidc:bob")
    assert await site.status() == 200
    site.console.copy.revoke_person("oidc:ann")
    assert await site.status() == 303
    assert await site.status("/change", "POST") == 401
    status, text = await site.sign_in("ann@admins")
    assert (status, "oidc:ann was revoked here" in text) == (403, True)
    site.console.copy.restore_person("oidc:ann")
    assert await site.status() == 303  # the session that was revoked does not come back
    assert (await site.sign_in("ann@admins"))[0] == 303
    assert await site.status() == 200


async def test_who_signs_out_may_sign_out_of_the_provider_too(site: Site) -> None:
    await site.sign_in("ann@admins")
    status, _, headers = await fetched(site.browser, site.url + "/sign-out", "POST", {"origin": site.url})
    assert (status, headers["location"]) == (303, "/sign-in?signed-out")
    assert await site.status() == 303
    _, text, _ = await fetched(site.browser, site.url + "/sign-in?signed-out")
    link = re.search(r'id="sign-out-of-provider" href="([^"]+)"', text)
    assert link is not None
    async with site.browser.get(html.unescape(link[1])) as page:
        assert page.status == 200
        assert "/session/end/confirm" in await page.text()


async def test_whoever_signs_out_at_the_provider_is_signed_out_of_the_console(site: Site) -> None:
    await site.sign_in("ann@admins")
    async with new_browser() as browser:
        other_site = Site(site.console, site.provider, browser)
        await other_site.sign_in("bob@admins")
        async with site.browser.get(f"{site.provider.issuer}/session/end") as page:
            text = await page.text()
        secret = re.search(r'name="xsrf" value="([^"]+)"', text)
        assert secret is not None, text
        form_fields = {"xsrf": secret[1], "logout": "yes"}
        async with site.browser.post(
            f"{site.provider.issuer}/session/end/confirm", data=form_fields
        ) as answer:
            assert answer.status == 200, await answer.text()
        async with asyncio.timeout(60):
            while await site.status() != 303:
                await asyncio.sleep(0.1)
        assert (await other_site.me())["name"] == "oidc:bob"


async def test_keys_that_the_provider_replaces_count_at_once(site: Site) -> None:
    assert (await site.sign_in("ann@admins"))[0] == 303
    await site.provider.rotate()
    async with new_browser() as browser:
        later_site = Site(site.console, site.provider, browser)
        assert (await later_site.sign_in("bob@admins"))[0] == 303
        assert (await later_site.me())["name"] == "oidc:bob"
    assert (await site.me())["name"] == "oidc:ann"


async def test_while_the_provider_is_down_sessions_go_on_and_the_page_says_503(
    oidc_program: Path, tmp_path: Path
) -> None:
    url, port = f"http://127.0.0.1:{free_port()}", free_port()
    async with signing_in(RunningProvider(f"http://127.0.0.1:{port}", url), tmp_path / "secret") as site:
        assert await site.status("/sign-in") == 200
        assert await site.status("/sign-in/oidc") == 503
        with running_provider(oidc_program, url, port):
            assert (await site.sign_in("ann@admins"))[0] == 303
            late_callback = await site.callback("ann@admins")
        assert await site.status("/change", "POST") == 200
        status, text, _ = await fetched(site.browser, late_callback)
        assert (status, "Tokens and links work" in text) == (503, True)
        assert await site.status() == 200


async def test_without_its_principals_a_console_signs_nobody_in(site: Site) -> None:
    callback = await site.callback("ann@admins")
    site.console.copy.fresh = False
    assert (await fetched(site.browser, callback))[0] == 503
    site.console.copy.fresh = True
    await site.sign_in("ann@admins")
    site.console.copy.fresh = False
    assert await site.status() == 200
    assert await site.status("/change", "POST") == 503


@pytest.mark.parametrize("hours", [-1, 1])
async def test_with_a_clock_an_hour_off_nobody_signs_in_and_sessions_keep_their_time(
    site: Site, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    await site.sign_in("ann@admins")
    with monkeypatch.context() as clock_patch:
        clock_patch.setattr(provider_requests, "now_us", lambda: clock.now_us() + hours * 3_600_000_000)
        async with new_browser() as browser:
            later_site = Site(site.console, site.provider, browser)
            status, text = await later_site.sign_in("bob@admins")
            assert (status, "clock" in text) == (401, True)
    assert await site.status("/change", "POST") == 200


@pytest.mark.parametrize(("settings", "life_s"), [({}, 600), ({"SESSION_S": "7200"}, 7200)])
async def test_a_session_ends_with_the_id_token_or_after_the_set_time(
    provider: RunningProvider,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, str],
    life_s: float,
) -> None:
    async with signing_in(provider, tmp_path / "secret", **settings) as site:
        await site.sign_in("ann@admins")
        now_s = clock.monotonic_s()
        for moment_s, status in ((now_s + life_s - 60, 200), (now_s + life_s + 1, 303)):
            monkeypatch.setattr(sessions, "monotonic_s", lambda moment_s=moment_s: moment_s)
            assert await site.status() == status


async def test_a_public_client_signs_people_in(provider: RunningProvider, tmp_path: Path) -> None:
    (tmp_path / "secret").touch()
    async with signing_in(provider, tmp_path / "secret", CLIENT_ID=PUBLIC_CLIENT_ID) as site:
        assert (await site.sign_in("ann@admins"))[0] == 303


async def test_a_secret_that_is_mended_counts_at_once(provider: RunningProvider, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("wrong")
    async with signing_in(provider, tmp_path / "secret") as site:
        assert (await site.sign_in("ann@admins"))[0] == 503
        (tmp_path / "secret").write_text(CLIENT_SECRET)
        assert (await site.sign_in("ann@admins"))[0] == 303


async def test_a_browser_at_another_name_of_the_console_is_led_to_its_url(
    provider: RunningProvider, tmp_path: Path
) -> None:
    async with signing_in(provider, tmp_path / "secret", provider.console) as site:
        other_url = provider.console.replace("127.0.0.1", "localhost")
        _, _, headers = await fetched(site.browser, f"{other_url}/sign-in/oidc?next=/pipes/x")
        assert headers["location"] == f"{provider.console}/sign-in/oidc?next=%2Fpipes%2Fx"
        assert (await site.sign_in("ann@admins"))[0] == 303


async def test_a_cookie_that_is_not_ascii_is_that_of_no_browser() -> None:
    provider = AsyncMock()
    sign_in = login.OidcLogin(OidcSettings(), provider)
    await sign_in.begin("http://127.0.0.1/sign-in/oidc/callback", "/")
    _, state, _, _ = provider.authorization_url.await_args.args
    with pytest.raises(SignInRefused, match="this browser began no such sign-in"):
        await sign_in.end({"state": state, "code": "x"}, "\xe9")


def test_the_leeway_is_a_minute() -> None:
    assert id_token.LEEWAY_S == 60
