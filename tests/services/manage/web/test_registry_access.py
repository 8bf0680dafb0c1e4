"""Subjects of the schema registry that a principal may change."""

from typing import Any
from unittest.mock import AsyncMock, MagicMock

import pytest
from starlette.requests import Request

from hifi.control.principals.principal import Principal, Role
from hifi.record.record import Record
from hifi.runtime.http.problem import Problem
from hifi_manage.schemas import changes
from hifi_manage.schemas.changes import RegistryChange
from hifi_manage.web.registry import SchemaRegistry
from hifi_manage.web.registry_access import check_scope

PIPES = ["orders", "orders-eu", "flights"]


@pytest.mark.parametrize(
    ("subject", "is_allowed"),
    [
        ("orders", True),
        ("orders-value", True),
        ("orders.Key", True),
        ("orders-eu", False),
        ("orders-eu-value", False),
        ("orders-eu.Key", False),
        ("orders-europe-value", True),
        ("ordersx", False),
        ("flights-value", False),
        (None, False),
    ],
)
def test_a_subject_is_of_the_pipe_with_the_longest_name(subject: str | None, is_allowed: bool) -> None:
    orders_admin = Principal("pat", Role.ADMIN, ("orders",), "0" * 64, None, "ann", 0)
    if is_allowed:
        check_scope(orders_admin, subject, PIPES)
    else:
        with pytest.raises(Problem, match="may change the subjects of the pipes orders only"):
            check_scope(orders_admin, subject, PIPES)
    check_scope(Principal("ann", Role.ADMIN, (), "0" * 64, None, "ann", 0), subject, PIPES)


@pytest.mark.parametrize(
    ("held", "unreadable", "is_allowed"),
    [({}, {}, True), ({"orders-eu": "why"}, {}, False), ({}, {"orders-eu": "why"}, False)],
)
async def test_a_pipe_that_cannot_be_read_still_has_its_subjects(
    monkeypatch: pytest.MonkeyPatch, held: dict[str, str], unreadable: dict[str, str], is_allowed: bool
) -> None:
    state: Any = MagicMock()
    state.registry.all.return_value = []
    state.registry.all_held.return_value = held
    state.declared.newest, state.declared.unreadable = {"orders": MagicMock()}, unreadable
    change = RegistryChange("changed", [Record(b"", b"", [])])
    state.schemas.catch_up, state.change_schemas = AsyncMock(), AsyncMock(return_value=change)
    monkeypatch.setattr(changes, "level_removal", lambda *_, **__: change)
    orders_admin = Principal("pat", Role.ADMIN, ("orders",), "0" * 64, None, "ann", 0)
    request = Request({"type": "http", "path_params": {"subject": "orders-eu-value"}})
    removal = SchemaRegistry(state).remove_level(request, orders_admin)
    if is_allowed:
        assert await removal == "changed"
    else:
        with pytest.raises(Problem, match="may change the subjects of the pipes orders only"):
            await removal
    assert state.change_schemas.await_count == is_allowed
