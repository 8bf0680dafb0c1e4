"""Data of events is shown to data viewers and above, each time with an entry in the audit that names them."""

from typing import Any

import pytest
from tests.support.observe_principal import principal

from hifi.control.principals.audit import AuditEntry, AuditOutcome
from hifi.control.principals.audit_log import AuditLog
from hifi.control.principals.gate import Gate
from hifi.control.principals.principal import Principals, Role
from hifi.runtime.http.problem import Problem
from hifi_observe.web.event_data import EventDataReaders

LETTER = {"id": "0:1", "data": "secret", "hidden": False}


class Copy:
    """A copy of no principals."""

    def __init__(self, *, fresh: bool = True) -> None:
        self.principals = Principals()
        self.read = True
        self.fresh = fresh


def readers(
    entries: list[AuditEntry], *, fresh: bool = True, error: Exception | None = None
) -> EventDataReaders:
    async def write(entry: AuditEntry) -> None:
        if error is not None:
            raise error
        entries.append(entry)

    return EventDataReaders(Gate(Copy(fresh=fresh)), AuditLog(write))


@pytest.mark.parametrize(
    ("role", "is_shown"),
    [(Role.VIEWER, False), (Role.DATA_VIEWER, True), (Role.OPERATOR, True), (Role.ADMIN, True)],
)
async def test_data_needs_a_role_and_leaves_an_entry_that_names_the_reader(
    role: Role, is_shown: bool
) -> None:
    entries: list[AuditEntry] = []
    (letter,) = await readers(entries).shown(principal("ann", role), "flights", [LETTER])
    assert (letter["data"], letter["withheld"]) == (("secret", False) if is_shown else ("", True))
    if not is_shown:
        assert entries == []
        return
    (entry,) = entries
    assert (entry.principal, entry.what, entry.subject) == ("ann", "read event data", "pipe/flights")
    assert (entry.outcome, entry.after) == (AuditOutcome.DONE, {"dead_letters": ["0:1"]})


async def test_a_list_without_data_leaves_no_entry() -> None:
    entries: list[AuditEntry] = []
    letters: list[dict[str, Any]] = [{**LETTER, "data": ""}]
    await readers(entries).shown(principal("ann", Role.ADMIN), "flights", letters)
    assert entries == []


async def test_nothing_is_shown_if_the_audit_cannot_be_written() -> None:
    with pytest.raises(Problem) as error:
        await readers([], error=OSError("away")).shown(principal("ann", Role.ADMIN), "flights", [LETTER])
    assert error.value.status == 503


async def test_nothing_is_shown_if_a_revocation_could_be_missing() -> None:
    entries: list[AuditEntry] = []
    with pytest.raises(Problem) as error:
        await readers(entries, fresh=False).shown(principal("ann", Role.ADMIN), "flights", [LETTER])
    assert (error.value.status, entries) == (503, [])
