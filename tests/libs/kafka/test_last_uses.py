"""The last use of each token: noted where a request is let in, written once a minute, and joined over instances."""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka.errors import KafkaConnectionError

from hifi.control.principals.gate import Gate, Needs
from hifi.control.principals.person import Person, ProviderSession
from hifi.control.principals.principal import Principal, Principals, Role, token_sha256
from hifi.kafka import last_uses
from hifi.kafka.last_uses import LastUses
from hifi.record.record import Record
from hifi.runtime.http.problem import Problem

S = 1_000_000
ANN = Principal("ann", Role.VIEWER, (), token_sha256("token"), None, "root", 100 * S)
BOB = Principal("bob", Role.VIEWER, (), token_sha256("other"), None, "root", 100 * S)


def names(records: Sequence[Record]) -> list[bytes | None]:
    return [record.key for record in records]


def written(last_uses: LastUses) -> None:
    for record in last_uses.due():
        last_uses.take(record.key, record.value, 0)


def test_the_first_use_is_due_at_once_and_the_next_after_a_minute() -> None:
    last_uses = LastUses()
    assert last_uses.due() == []
    last_uses.note(ANN.name, 1000 * S)
    assert names(last_uses.due()) == [b"ann"]
    written(last_uses)
    last_uses.note(ANN.name, 1059 * S)
    last_uses.note(BOB.name, 1059 * S)
    assert names(last_uses.due()) == [b"bob"]
    last_uses.note(ANN.name, 1060 * S)
    assert names(last_uses.due()) == [b"ann", b"bob"]


def test_the_newest_use_of_all_instances_counts_in_any_order() -> None:
    own_uses, other_uses = LastUses(), LastUses()
    for at_s in (1000, 2000, 1500):
        writer = LastUses()
        writer.note(ANN.name, at_s * S)
        for record in writer.due():
            own_uses.take(record.key, record.value, 0)
            other_uses.take(record.key, record.value, 0)
    assert other_uses.at_us(ANN.name, ANN.at_us) == 2000 * S
    own_uses.note(ANN.name, 3000 * S)
    assert own_uses.at_us(ANN.name, ANN.at_us) == 3000 * S
    assert own_uses.at_us(BOB.name, BOB.at_us) is None


def test_a_use_before_the_principal_was_made_anew_is_not_shown() -> None:
    last_uses = LastUses()
    last_uses.note(ANN.name, 99 * S)
    assert last_uses.at_us(ANN.name, ANN.at_us) is None
    last_uses.note(ANN.name, 100 * S)
    assert last_uses.at_us(ANN.name, ANN.at_us) == 100 * S


@pytest.mark.parametrize("value", [None, b"", b"x", b"{}", b"[]", b'{"at_us": "later"}', b'{"at_us": null}'])
def test_what_is_no_record_of_a_use_is_refused(value: bytes | None) -> None:
    last_uses = LastUses()
    with pytest.raises(ValueError, match="use"):
        last_uses.take(b"ann", value, 0)
    assert last_uses.at_us(ANN.name, ANN.at_us) is None


def request(token: str) -> Any:
    headers = {"authorization": f"Bearer {token}"}
    return SimpleNamespace(headers=headers, cookies={}, path_params={}, method="GET")


def test_who_is_let_in_or_may_not_do_this_has_used_the_token_and_a_stranger_none() -> None:
    principals = Principals()
    for principal in (ANN, BOB):
        principals.take(principal.name.encode(), principal.record().value, 0)
    last_uses = LastUses()
    gate = Gate(SimpleNamespace(principals=principals, read=True, fresh=True), last_uses)
    gate.principal(request("token"), Needs(Role.VIEWER))
    assert names(last_uses.due()) == [b"ann"]
    with pytest.raises(Problem):
        gate.principal(request("wrong"), Needs(Role.VIEWER))
    assert names(last_uses.due()) == [b"ann"]
    with pytest.raises(Problem):
        gate.principal(request("other"), Needs(Role.ADMIN))
    assert names(last_uses.due()) == [b"ann", b"bob"]


def test_people_of_a_provider_have_no_token() -> None:
    person = Principal("oidc:eve", Role.VIEWER, (), "", None, "https://id.example", 1)
    last_uses, principals = LastUses(), Principals()
    gate = Gate(SimpleNamespace(principals=principals, read=True, fresh=True), last_uses)
    session = gate.sessions.begin(Person(person.name, (person,), 60, ProviderSession("sub")))
    signed_in = SimpleNamespace(
        headers={},
        cookies={"hifi-session-80": session},
        path_params={},
        method="GET",
        url=SimpleNamespace(port=80),
    )
    assert gate.principal(signed_in, Needs(Role.VIEWER)) == person  # type: ignore[arg-type]
    assert last_uses.due() == []


@pytest.mark.parametrize("failure", [KafkaConnectionError(), OSError(), TimeoutError()])
async def test_a_use_that_cannot_be_written_is_written_later(
    monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    monkeypatch.setattr(last_uses, "_WRITE_S", 0.001)
    token_uses, failures = LastUses(), [failure, failure]
    records: list[Record] = []

    async def write(due: Sequence[Record]) -> None:
        if failures:
            raise failures.pop()
        records.extend(due)

    token_uses.note(ANN.name, 1000 * S)
    task = asyncio.create_task(token_uses.run(write))
    async with asyncio.timeout(10):
        while not records:
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.01)
    task.cancel()
    assert names(records) == [b"ann"]
