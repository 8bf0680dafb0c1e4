"""Write keys by the management API, with a state of the test: issued, rotated and revoked, each with an entry."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import MagicMock

import aiohttp
import pytest
from tests.support.observe_principal import PRINCIPALS, as_principal
from typer.testing import CliRunner

from hifi.control.principals.audit import AuditEntry
from hifi.control.principals.principal import Principals
from hifi.kafka.last_uses import LastUses
from hifi.pipe.issued_key import IssuedKey, IssuedKeys
from hifi.runtime.http import server
from hifi_cli.commands.keys import app as hifi_keys
from hifi_manage.web.api import application

ADMIN = as_principal("admin")


class State(MagicMock):
    """A state in which the pipes `flights` and `orders` are in force."""

    read = True
    fresh = True

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        self.principals, self.uses = Principals(), LastUses()
        for principal in PRINCIPALS:
            self.principals.take(principal.name.encode(), principal.record().value, 0)
        self.keys, self.key_uses = IssuedKeys(), LastUses()
        self.declared.newest = {"flights": MagicMock(), "orders": MagicMock()}
        self.registry.coloured = False
        self.held.return_value = self.registry.held.return_value = None
        self.declared.unreadable = {}
        self.entries: list[AuditEntry] = []

    async def change_keys(
        self, entry: AuditEntry, keys: Sequence[IssuedKey], revoked: Sequence[str] = ()
    ) -> None:
        self.entries.append(entry)
        for key in keys:
            self.keys.take(key.record().key, key.record().value, 0)
        for identity in revoked:
            self.keys.take(identity.encode(), None, 0)

    def _get_child_mock(self, **values: Any) -> MagicMock:
        return MagicMock(**values)


@asynccontextmanager
async def served(state: State) -> AsyncIterator[str]:
    sock = server.listen("127.0.0.1", 0)
    async with server.serve(application(state, ""), sock, drain_s=1):
        yield f"http://127.0.0.1:{sock.getsockname()[1]}/api/v1/pipes"


async def ask(method: str, url: str, body: Any = None) -> tuple[int, Any]:
    async with (
        aiohttp.ClientSession(headers=ADMIN) as session,
        session.request(method, url, json=body) as answer,
    ):
        return answer.status, await answer.json()


async def test_a_key_is_shown_once_rotated_with_overlap_and_revoked_each_with_an_entry() -> None:
    state = State()
    async with served(state) as url:
        status, made = await ask("POST", f"{url}/flights/keys", {"origins": ["https://Shop.example"]})
        assert (status, made["key"]["origins"]) == (201, ["https://shop.example"])
        first, secret = made["key"]["id"], made["secret"]
        status, made = await ask("POST", f"{url}/flights/keys/{first}/rotate", {"overlap_s": 60})
        assert (status, made["key"]["origins"]) == (201, ["https://shop.example"])
        second = made["key"]["id"]
        state.key_uses.note(second, made["key"]["at_us"] + 1)
        _, listed = await ask("GET", f"{url}/flights/keys")
        by_id = {key["id"]: key for key in listed["keys"]}
        assert by_id[first]["expires_us"] == pytest.approx(made["key"]["at_us"] + 60_000_000)
        assert by_id[first]["last_used_us"] is None
        assert by_id[second]["last_used_us"] == made["key"]["at_us"] + 1
        assert not any(text in str(listed) for text in (secret, made["secret"], "sha256"))
        assert (await ask("GET", f"{url}/orders/keys"))[1] == {"keys": []}
        assert (await ask("DELETE", f"{url}/orders/keys/{first}"))[0] == 404
        status, left = await ask("DELETE", f"{url}/flights/keys/{first}")
        assert (status, [key["id"] for key in left["keys"]]) == (200, [second])
    assert [(entry.principal, entry.what, entry.subject) for entry in state.entries] == [
        ("admin", "issue the write key", f"write-key/{first}"),
        ("admin", "rotate the write key", f"write-key/{first}"),
        ("admin", "revoke the write key", f"write-key/{first}"),
    ]
    assert secret not in str(state.entries)


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        ("/flights/keys", {"origins": ["*"]}, 400),
        ("/flights/keys", {"origins": "https://shop.example"}, 400),
        ("/flights/keys", {"expires_s": 0}, 400),
        ("/flights/keys", {"expires_s": "nan"}, 400),
        ("/flights/keys", {"expires_s": 1e300}, 400),
        ("/flights/keys", {"unknown": 1}, 400),
        ("/flights/keys", [], 400),
        ("/flights/keys", {"origins": [f"https://{number}.example" for number in range(21)]}, 400),
        ("/flights/keys/unknown/rotate", {}, 404),
    ],
)
async def test_what_is_wrong_is_refused_and_changes_nothing(path: str, body: Any, expected: int) -> None:
    state = State()
    async with served(state) as url:
        status, problem = await ask("POST", url + path, body)
        assert status == expected, problem
    assert state.entries == []


async def test_a_change_of_keys_of_two_colours_is_refused_with_the_command_that_makes_it_in_both() -> None:
    state = State()
    async with served(state) as url:
        _, made = await ask("POST", f"{url}/flights/keys", {})
        state.entries.clear()
        state.registry.coloured = True
        state.registry.get.return_value = None
        key = made["key"]["id"]
        for method, path, body, command in (
            ("POST", "/flights/keys", {}, "issue flights --key-file FILE"),
            ("POST", f"/flights/keys/{key}/rotate", {}, f"rotate {key} --key-file FILE"),
            ("DELETE", f"/flights/keys/{key}", None, f"revoke {key}"),
        ):
            status, problem = await ask(method, url + path, body)
            assert status == 409
            assert f"`hifi keys {command}`" in problem["detail"]
            assert re.search(r"compose COLOUR run .* cli keys " + command.split()[0], problem["detail"])
            assert CliRunner().invoke(hifi_keys, [*command.split(), "--help"]).exit_code == 0
        for path in ("/unknown/keys", "/flights/keys/unknown/rotate"):
            assert (await ask("POST", url + path, {}))[0] == 404
        status, listed = await ask("GET", f"{url}/flights/keys")
        assert (status, [held["id"] for held in listed["keys"]]) == (200, [key])
    assert state.entries == []
