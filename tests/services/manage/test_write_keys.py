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
        self,
        entry: AuditEntry,
        keys: Sequence[IssuedKey],
        revoked: Sequence[str] = (),
        rotated_key: IssuedKey | None = None,
    ) -> None:
        assert (rotated_key is None) == (len(keys) < 2)
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
        status, answer = await ask("POST", f"{url}/flights/keys", {"origins": ["https://Shop.example"]})
        assert (status, answer["key"]["origins"]) == (201, ["https://shop.example"])
        first_id, secret = answer["key"]["id"], answer["secret"]
        status, answer = await ask("POST", f"{url}/flights/keys/{first_id}/rotate", {"overlap_s": 60})
        assert (status, answer["key"]["origins"]) == (201, ["https://shop.example"])
        second_id = answer["key"]["id"]
        state.key_uses.note(second_id, answer["key"]["at_us"] + 1)
        _, listing = await ask("GET", f"{url}/flights/keys")
        keys_by_id = {key["id"]: key for key in listing["keys"]}
        assert keys_by_id[first_id]["expires_us"] == pytest.approx(answer["key"]["at_us"] + 60_000_000)
        assert keys_by_id[first_id]["last_used_us"] is None
        assert keys_by_id[second_id]["last_used_us"] == answer["key"]["at_us"] + 1
        assert not any(text in str(listing) for text in (secret, answer["secret"], "sha256"))
        assert (await ask("GET", f"{url}/orders/keys"))[1] == {"keys": []}
        assert (await ask("DELETE", f"{url}/orders/keys/{first_id}"))[0] == 404
        status, remaining = await ask("DELETE", f"{url}/flights/keys/{first_id}")
        assert (status, [key["id"] for key in remaining["keys"]]) == (200, [second_id])
    assert [(entry.principal, entry.what, entry.subject) for entry in state.entries] == [
        ("admin", "issue the write key", f"write-key/{first_id}"),
        ("admin", "rotate the write key", f"write-key/{first_id}"),
        ("admin", "revoke the write key", f"write-key/{first_id}"),
    ]
    assert secret not in str(state.entries)


@pytest.mark.slow
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
        _, answer = await ask("POST", f"{url}/flights/keys", {})
        state.entries.clear()
        state.registry.coloured = True
        state.registry.get.return_value = None
        key = answer["key"]["id"]
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
        status, listing = await ask("GET", f"{url}/flights/keys")
        assert (status, [issued_key["id"] for issued_key in listing["keys"]]) == (200, [key])
    assert state.entries == []
