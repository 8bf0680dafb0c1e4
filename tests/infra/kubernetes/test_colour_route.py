"""The shares of two colours in an HTTPRoute, and the change to others, as bodies."""

import copy
from typing import Any

import pytest
from tests.support.kubernetes.gateway import BACKENDS, route_body, status_body
from tests.support.kubernetes.modelled_api import merged

from hifi.runtime.errors import Misconfigured
from hifi_infra.kubernetes.colour_route import read
from hifi_infra.kubernetes.fenced_changes import FENCE_ANNOTATION


def described(blue_weight: int = 90, green_weight: int = 10) -> dict[str, Any]:
    """The route as the API describes it."""
    body = route_body(blue_weight, green_weight)
    body["metadata"] |= {"resourceVersion": "77", "generation": 4, "annotations": {FENCE_ANNOTATION: "5"}}
    return body | {"status": status_body(4, accepts=True)}


@pytest.mark.parametrize(
    ("weights", "shares"),
    [
        ((90, 10), {"blue": 9000, "green": 1000}),
        ((9_995, 5), {"blue": 9995, "green": 5}),
        ((1, 0), {"blue": 10_000, "green": 0}),
        ((1, 2), {"blue": 3333, "green": 6667}),
        ((0, 0), {}),
    ],
)
def test_shares_are_the_weights_as_parts_of_their_sum(
    weights: tuple[int, int], shares: dict[str, int]
) -> None:
    route = read(described(*weights), BACKENDS)
    assert (route.shares, route.version, route.token, route.waits_for) == (shares, "77", 5, "")


def test_a_backend_without_a_weight_has_the_weight_1() -> None:
    body = described()
    for backend in body["spec"]["rules"][0]["backendRefs"]:
        del backend["weight"]
    assert read(body, BACKENDS).shares == {"blue": 5000, "green": 5000}


def test_a_change_sets_the_weights_of_each_rule_and_nothing_else() -> None:
    body = described()
    redirect = {"filters": [{"type": "RequestRedirect", "requestRedirect": {"scheme": "https"}}]}
    body["spec"]["rules"] += [redirect, copy.deepcopy(body["spec"]["rules"][0])]
    route = read(body, BACKENDS)
    change = route.change_to({"blue": 0, "green": 10_000})
    assert change is not None
    changed = merged(body, change)
    assert read(changed, BACKENDS).shares == {"blue": 0, "green": 10_000}
    for rule in changed["spec"]["rules"]:
        for backend in rule.get("backendRefs", ()):
            backend["weight"] = {"blue-hifi-ingest": 90, "green-hifi-ingest": 10}[backend["name"]]
    assert changed == body


def test_a_route_that_has_the_shares_is_left_alone() -> None:
    assert read(described(), BACKENDS).change_to({"blue": 9000, "green": 1000}) is None


def test_rules_with_different_weights_have_no_shares_and_get_the_same() -> None:
    body = described()
    body["spec"]["rules"] += described(1, 1)["spec"]["rules"]
    route = read(body, BACKENDS)
    assert route.shares == {}
    change = route.change_to({"blue": 9000, "green": 1000})
    assert change is not None
    assert read(merged(body, change), BACKENDS).shares == {"blue": 9000, "green": 1000}


@pytest.mark.parametrize(
    "names", [["blue-hifi-ingest"], ["blue-hifi-ingest", "green-hifi-ingest", "other"], []]
)
def test_a_rule_that_leads_elsewhere_is_refused_with_what_to_do(names: list[str]) -> None:
    body = described()
    body["spec"]["rules"][0]["backendRefs"] = [{"name": name, "port": 8080} for name in names]
    with pytest.raises(
        Misconfigured, match=r"the Services of both colours, blue-hifi-ingest and green-hifi-in"
    ):
        read(body, BACKENDS)


def test_a_route_waits_for_gateways_that_have_not_looked_or_refuse() -> None:
    body = described()
    body["metadata"]["generation"] = 5
    assert read(body, BACKENDS).waits_for == "the Gateway gateway has not looked at its last change"
    body["status"] = status_body(5, accepts=False)
    assert "the Gateway gateway refuses it: NotAllowedByListeners" in read(body, BACKENDS).waits_for
    body["status"]["parents"][0]["conditions"] = []
    assert read(body, BACKENDS).waits_for == "the Gateway gateway has not looked at it"
    del body["status"]
    assert read(body, BACKENDS).waits_for.startswith("no Gateway has accepted it")
