"""An instance that has reached nothing, not even Kafka: its pages and its API answer those who are signed in."""

import aiohttp
import pytest
from tests.support.observe_principal import PRINCIPALS, VIEWER, as_principal

from hifi.runtime.health import Health
from hifi.runtime.http import server
from hifi_observe.kafka.principals_copy import TopicCopy
from hifi_observe.observer import Observer
from hifi_observe.settings import ObserveSettings
from hifi_observe.web.operations import OPERATIONS

PAGES = ["/", "/alarms", "/control", "/runbooks", "/pipes/x", "/pipes/x/dead", "/sign-in", "/openapi.json"]


async def test_every_page_and_call_answers_and_shows_who_is_signed_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    observer = Observer(ObserveSettings(kafka="127.0.0.1:1", stream="s"), Health("observe", "i"))
    monkeypatch.setattr(TopicCopy, "read", True)
    for known_principal in PRINCIPALS:
        observer.principals.principals.take(known_principal.name.encode(), known_principal.record().value, 0)
    calls = [
        operation.path.format(pipe="x", minute="1") + ("?id=1" if operation.name == "event" else "")
        for operation in OPERATIONS
        if operation.method == "GET"
    ]
    sock = server.listen("127.0.0.1", 0)
    async with server.serve(observer.application(), sock, drain_s=1), aiohttp.ClientSession() as session:
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        statuses = {}
        for path in [*PAGES, *calls]:
            async with session.get(url + path, headers=VIEWER) as answer:
                statuses[path] = answer.status
                if path in ("/", "/alarms", "/control", "/runbooks"):
                    assert "viewer (viewer)" in await answer.text()
        # What write keys have used is not known, and would be missing in the answer without a word.
        assert {path: status for path, status in statuses.items() if status not in (200, 404)} == {
            "/api/v1/usage": 503
        }
        assert {path for path, status in statuses.items() if status == 200} >= {
            "/",
            "/alarms",
            "/control",
            "/runbooks",
            "/api/v1/pipes",
            "/api/v1/status",
            "/api/v1/me",
        }
        for name, is_shown in (("viewer", False), ("operator", True)):
            async with session.get(url + "/alarms", headers=as_principal(name)) as answer:
                assert ('<form id="silence"' in await answer.text()) is is_shown
        async with session.post(
            url + "/api/v1/silences", headers=as_principal("operator"), json={"reason": "x", "seconds": 1}
        ) as answer:
            assert answer.status == 503  # the principals were not read lately


@pytest.mark.slow
async def test_the_page_to_sign_in_names_the_provider_of_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {"ISSUER": "https://id.example/realm", "CLIENT_ID": "hifi", "ROLES": "viewer=*"}
    for has_provider in (False, True):
        for name, value in settings.items() if has_provider else ():
            monkeypatch.setenv(f"HIFI_OIDC_{name}", value)
        observer = Observer(ObserveSettings(kafka="127.0.0.1:1", stream="s"), Health("observe", "i"))
        sock = server.listen("127.0.0.1", 0)
        async with (
            server.serve(observer.application(), sock, drain_s=1),
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{sock.getsockname()[1]}/sign-in") as page,
        ):
            assert ("Sign in with id.example" in await page.text()) is has_provider
