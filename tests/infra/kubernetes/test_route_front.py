"""Shares, fencing and refusals of a Gateway as the front: on a model of the API, and on a real API server."""

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.support.helm.chart import GATEWAY, find_helm, render
from tests.support.helm.crds import install_crds
from tests.support.kubernetes.api_server import ApiServer, api_server
from tests.support.kubernetes.gateway import (
    BACKENDS,
    ROUTE,
    ModelledGateway,
    RealGateway,
    real_gateway,
    route_body,
)

from hifi.delivery.colours import NAMES, Colour, Colours, ColourSetup, ColourState
from hifi.runtime.errors import Misconfigured, Retryable
from hifi_infra.colours.colour_log import ColourLog
from hifi_infra.colours.colour_loop import ColourLoop
from hifi_infra.kubernetes import route_front
from hifi_infra.kubernetes.fenced_changes import FENCE_ANNOTATION
from hifi_infra.kubernetes.route_front import RouteFront

pytestmark = pytest.mark.timeout(1200)

URL = "https://events.example"
BLUE = Path(__file__).parents[1] / "helm/values/blue.yaml"
ALL_BLUE, ALL_GREEN = {"blue": 10_000, "green": 0}, {"blue": 0, "green": 10_000}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    with api_server(tmp_path_factory.mktemp("kubernetes")) as running:
        install_crds(running)
        yield running


@pytest.fixture(params=["model", pytest.param("real", marks=pytest.mark.more)])
async def gateway(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ModelledGateway | RealGateway]:
    """The API with the route of the chart, 90 to 10."""
    async with AsyncExitStack() as stack:
        if request.param == "model":
            monkeypatch.setattr(route_front, "_POLL_S", 0)
            yield ModelledGateway()
        else:
            server, namespace = request.getfixturevalue("server"), f"n{abs(hash(request.node.name))}"
            route = render(find_helm(), "--values", str(BLUE), apis=(GATEWAY,)).of("HTTPRoute")["ingest"]
            yield await stack.enter_async_context(real_gateway(server, namespace, route))


def front_of(api: ModelledGateway | RealGateway, token: int, name: str = ROUTE) -> RouteFront:
    """The front of a service `colours` that follows the record of this number."""
    return RouteFront(api, name, URL, BACKENDS, lambda: token)


async def route_of(api: ModelledGateway | RealGateway) -> dict[str, Any]:
    return await api.get(GATEWAY, "httproutes", ROUTE)


async def set_weights(api: ModelledGateway | RealGateway, blue_weight: int, green_weight: int) -> None:
    """Write the route as Helm does in an upgrade."""
    rules = route_body(blue_weight, green_weight)["spec"]["rules"]
    await api.merge(GATEWAY, "httproutes", ROUTE, {"spec": {"rules": rules}})


async def test_the_shares_go_to_the_weights_and_are_read_back(gateway: ModelledGateway | RealGateway) -> None:
    front, route_before = front_of(gateway, 1), await route_of(gateway)
    was_running = front.running
    await front.start({"blue": 9_995, "green": 5})
    assert (was_running, front.running) == (False, True)
    assert await front.shares() == {"blue": 9_995, "green": 5}
    await front.divide(ALL_GREEN)
    assert await front.shares() == ALL_GREEN
    route_after = await route_of(gateway)
    assert route_after["metadata"]["annotations"][FENCE_ANNOTATION] == "1"
    [rule_before], [rule] = route_before["spec"]["rules"], route_after["spec"]["rules"]
    assert [backend["weight"] for backend in rule["backendRefs"]] == [0, 10_000]
    weights = [backend.pop("weight") for backend in (*rule["backendRefs"], *rule_before["backendRefs"])]
    assert len(weights) == 4
    assert route_after["spec"] == route_before["spec"]


async def test_shares_that_are_in_force_are_not_written_again(gateway: ModelledGateway | RealGateway) -> None:
    await front_of(gateway, 1).start(ALL_BLUE)
    version = (await route_of(gateway))["metadata"]["resourceVersion"]
    front = front_of(gateway, 2)
    await front.start(ALL_BLUE)
    await front.divide(ALL_BLUE)
    assert (await route_of(gateway))["metadata"]["resourceVersion"] == version


async def test_a_front_that_was_frozen_changes_nothing(gateway: ModelledGateway | RealGateway) -> None:
    frozen = front_of(gateway, 1)
    await frozen.start(ALL_BLUE)
    await front_of(gateway, 2).start(ALL_GREEN)
    with pytest.raises(
        Retryable, match="the action 1 is over: action 2 has changed the HTTPRoute try-hifi-ingest"
    ):
        await frozen.divide(ALL_BLUE)
    assert await front_of(gateway, 3).shares() == ALL_GREEN
    await frozen.refresh()
    assert not frozen.running


async def test_a_front_that_was_frozen_between_reading_and_writing_changes_nothing(
    gateway: ModelledGateway | RealGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    second, frozen = front_of(gateway, 4), front_of(gateway, 3)
    merge, other_actions = gateway.merge, [lambda: second.divide(ALL_GREEN)]

    async def merge_after_another(
        group: str, kind: str, name: str, change: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Let another one act before the first change that the frozen one writes."""
        if other_actions and not name.endswith("/status"):
            await other_actions.pop()()
        return await merge(group, kind, name, change)

    monkeypatch.setattr(gateway, "merge", merge_after_another)
    with pytest.raises(Retryable, match="the action 3 is over: action 4 has changed"):
        await frozen.divide(ALL_BLUE)
    assert await second.shares() == ALL_GREEN


async def test_weights_that_an_upgrade_has_changed_are_set_again(
    gateway: ModelledGateway | RealGateway,
) -> None:
    front = front_of(gateway, 1)
    await front.refresh()
    await front.start(ALL_GREEN)
    await front.refresh()
    was_running = front.running
    await set_weights(gateway, 90, 10)
    gateway.looks = False
    with pytest.raises(Retryable, match="has not looked at its last change"):
        await front.refresh()
    assert (was_running, front.running) == (True, False), "the loop of the colours starts it again"
    gateway.looks = True
    await front.start(ALL_GREEN)
    assert (front.running, await front.shares()) == (True, ALL_GREEN)


async def test_shares_that_no_gateway_takes_are_not_in_force(
    gateway: ModelledGateway | RealGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(route_front, "_TAKEN_WITHIN_S", 0)
    front = front_of(gateway, 1)
    gateway.looks = False
    with pytest.raises(Retryable, match="the shares are not in force within 0 s"):
        await front.start(ALL_GREEN)
    assert not front.running
    with pytest.raises(Retryable, match="the HTTPRoute try-hifi-ingest waits: "):
        await front.shares()
    gateway.looks = True
    monkeypatch.setattr(route_front, "_TAKEN_WITHIN_S", 60)
    await front.start(ALL_GREEN)
    assert (front.running, await front.shares()) == (True, ALL_GREEN)


async def test_a_missing_route_and_a_missing_gateway_api_are_told_apart(
    gateway: ModelledGateway | RealGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Misconfigured, match=r"there is no HTTPRoute other: set route\.enabled"):
        await front_of(gateway, 1, "other").start(ALL_BLUE)
    monkeypatch.setattr(route_front, "_GATEWAY", "gateway.example/v1")
    with pytest.raises(
        Misconfigured, match=r"this cluster has no Gateway API \(gateway.example/v1\): install"
    ):
        await front_of(gateway, 1).start(ALL_BLUE)


class RunningColour:
    """A colour that runs."""

    was_started = True

    async def is_running(self) -> bool:
        return True

    async def start(self, setup: ColourSetup, *, in_background: bool) -> None:
        raise AssertionError((setup, in_background))

    async def stop(self) -> None:
        raise AssertionError

    async def adjust_priority(self, *, is_only: bool) -> None:
        assert not is_only


async def test_a_shift_of_the_record_reaches_the_route_and_an_earlier_record_does_not(
    gateway: ModelledGateway | RealGateway,
) -> None:
    colours = {
        name: Colour(share, ColourState.ACTIVE, (), "")
        for name, share in zip(NAMES, (9000, 1000), strict=True)
    }
    record = Colours(colours, (), 0, "test")
    logs = [SimpleNamespace(newest=record, newest_offset=7) for _ in range(2)]
    fronts = [RouteFront(gateway, ROUTE, URL, BACKENDS, lambda log=log: log.newest_offset) for log in logs]  # type: ignore[misc]  # mypy knows no defaults of lambdas
    loop, frozen = (
        ColourLoop(
            cast(ColourLog, log),
            dict.fromkeys(NAMES, RunningColour()),
            [front],
            pytest.fail,
            "test",
        )
        for log, front in zip(logs, fronts, strict=True)
    )
    await loop.bring_about()
    await frozen.bring_about()
    logs[0].newest, logs[0].newest_offset = record.with_shares(ALL_GREEN, 1, "test"), 8
    await loop.bring_about()
    assert await fronts[0].shares() == ALL_GREEN
    await fronts[1].refresh()
    with pytest.raises(Retryable, match="the action 7 is over: action 8 has changed"):
        await frozen.bring_about()
    assert await fronts[0].shares() == ALL_GREEN
