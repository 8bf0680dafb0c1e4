"""Subjects of the schema registry that a principal may change."""

import pytest

from hifi.control.principals.principal import Principal, Role
from hifi.runtime.http.problem import Problem
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
