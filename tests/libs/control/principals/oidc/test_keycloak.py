"""Sign-in on a console with Keycloak: people have the roles of its groups."""

from pathlib import Path
from urllib.parse import urlencode

import aiohttp
import pytest
from tests.support.keycloak import answer_of_keycloak, running_keycloak
from tests.support.oidc_console import Console, console, fetched, new_browser
from tests.support.oidc_provider import CLIENT_ID, CLIENT_SECRET

from hifi_infra.ports import free_port

PEOPLE = {"ann": ["ops", "sales"], "bob": ["admins"], "eve": []}


async def _sign_in(served_console: Console, browser: aiohttp.ClientSession, person: str) -> tuple[int, str]:
    """Status of the console's last answer, and what it says."""
    page = f"{served_console.url}/sign-in/oidc?{urlencode({'next': '/'})}"
    status, _, headers = await fetched(browser, page)
    assert status == 303
    callback = await answer_of_keycloak(browser, headers["location"], person)
    status, text, _ = await fetched(browser, callback)
    return status, text


@pytest.mark.more  # in CI: test_oidc_sign_in, with another provider
@pytest.mark.timeout(900)
async def test_people_sign_in_with_the_roles_of_their_groups_in_keycloak(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(CLIENT_SECRET)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    async with running_keycloak(tmp_path / "keycloak", url, PEOPLE) as keycloak:
        settings = {
            "ISSUER": keycloak.issuer,
            "CLIENT_ID": CLIENT_ID,
            "CLIENT_SECRET_FILE": str(secret),
            "ROLES": "viewer/flights=ops,operator/orders=sales,admin=admins",
            "NAME_CLAIM": "preferred_username",
        }
        async with console(settings, port, url) as served_console:
            async with new_browser(keycloak.issuer) as ann:
                assert (await _sign_in(served_console, ann, "ann"))[0] == 303
                statuses = [
                    (await fetched(ann, f"{url}{path}", "POST", {"origin": url}))[0]
                    for path in ("/pipes/orders/change", "/pipes/flights/change")
                ]
                assert statuses == [200, 403]
            async with new_browser(keycloak.issuer) as eve:
                status, text = await _sign_in(served_console, eve, "eve")
                assert (status, "oidc:eve is in no group that has a role here" in text) == (403, True)
            async with new_browser(keycloak.issuer) as bob:
                assert (await _sign_in(served_console, bob, "bob"))[0] == 303
                async with bob.get(url) as page:
                    assert (await page.json())["role"] == "admin"
