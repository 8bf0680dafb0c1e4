"""The service `colours` as a whole, but for Kafka: a record in memory, and a model of the API."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.support.kubernetes import gateway
from tests.support.kubernetes.egest_deployment import egest_body
from tests.support.kubernetes.gateway import BACKENDS, ModelledGateway

from hifi.delivery.colours import Colours, ColourState, FrontAddress
from hifi.kafka.topics import ControlTopics
from hifi.runtime.errors import Misconfigured, Retryable
from hifi.runtime.service import Service
from hifi_infra.colours import colours_service
from hifi_infra.colours.colour_log import ColourLog
from hifi_infra.colours.served_colours import ServedColours
from hifi_infra.kubernetes import colour_route, colours
from hifi_infra.kubernetes.colours import KubernetesColoursSettings, divide
from hifi_infra.kubernetes.kubernetes_api import ApiAccess
from hifi_infra.ports import free_port

WITHIN_S = 60
ROUTE = BACKENDS["blue"]
"""As the chart names the route of blue's release."""
ALL_GREEN = {"blue": 0, "green": 10_000}


class MemoryLog(ColourLog):
    """A log of the colours that has no Kafka."""

    async def start(self, on_failure: Callable[[Exception], None] = lambda _: None) -> None:
        """It can be read at once."""

    async def stop(self) -> None:
        """Nothing has to end."""

    async def catch_up(self) -> None:
        """There is nothing new."""

    async def write(self, change: Callable[[Colours | None], Awaitable[Colours]]) -> None:
        """Keep the record."""
        self.newest, self.newest_offset = await change(self.newest), self.newest_offset + 1


class ColouredApi(ModelledGateway):
    """The API with the route and egest of both releases, of which green lacks an instance."""

    async def list(self, group: str, kind: str, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        """As `KubernetesApi.list`."""
        assert (group, kind) == ("apps/v1", "deployments")
        ready = {"blue": 2, "green": 1}[labels["app.kubernetes.io/instance"]]
        return [egest_body(2) | {"status": {"readyReplicas": ready}}]


@dataclass(slots=True)
class RunningService:
    """The service."""

    service: Service
    api: ColouredApi
    log: MemoryLog
    served: ServedColours

    async def until(self, condition: Callable[[], object]) -> None:
        """Poll until a condition holds."""
        async with asyncio.timeout(WITHIN_S):
            while not condition():
                await asyncio.sleep(0.01)

    async def until_shares(self, shares: Mapping[str, int]) -> None:
        """Poll until the route has these shares."""
        async with asyncio.timeout(WITHIN_S):
            while colour_route.read(await self.api.get(*ROUTE_KEY), BACKENDS).shares != shares:
                await asyncio.sleep(0.01)


ROUTE_KEY = ("gateway.networking.k8s.io/v1", "httproutes", ROUTE)


@pytest.fixture
async def running(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[RunningService]:
    """The service of a pod, from its start until it has stopped."""
    monkeypatch.setattr(gateway, "ROUTE", ROUTE)
    api, logs = ColouredApi(), list[MemoryLog]()

    def make_log(bootstrap: str, control: ControlTopics, client_id: str) -> MemoryLog:
        """Make the one log."""
        logs.append(MemoryLog(bootstrap, control, client_id))
        return logs[0]

    access = ApiAccess("https://kubernetes.example", tmp_path / "token", tmp_path / "ca.crt", "shop")
    monkeypatch.setattr(ApiAccess, "of_pod", lambda _: access)
    monkeypatch.setattr(colours, "KubernetesApi", lambda *_: api)
    monkeypatch.setattr(colours, "_READ_S", 0.01)
    monkeypatch.setattr(colours_service, "ColourLog", make_log)
    settings = KubernetesColoursSettings(
        colours_port=free_port(),
        colours_route=ROUTE,
        colours_url="https://events.example",
        colours_blue_kafka="blue-kafka:9092",
        colours_green_kafka="green-kafka:9092",
    )
    service = Service("colours", settings)
    task = asyncio.create_task(divide(service, settings))
    await asyncio.sleep(0)
    assert service.health.waiting, "it is not ready before it has acted"
    served = ServedColours(f"http://127.0.0.1:{settings.colours_port}")
    try:
        running_service = RunningService(service, api, logs[0], served)
        await running_service.until(lambda: service.health.ready or task.done())
        yield running_service
    finally:
        service.stop()
        with suppress(TimeoutError):
            await asyncio.wait_for(task, WITHIN_S)
    assert task.exception() is None


async def test_it_gives_all_requests_to_blue_at_first_and_follows_the_record(running: RunningService) -> None:
    record = running.log.newest
    assert record is not None
    assert record.shares == {"blue": 10_000, "green": 0}
    assert [(front.url, front.stats) for front in record.fronts] == [("https://events.example", "")]
    assert record.colours["green"].ingest == ("http://green-hifi-ingest:8080",)
    await running.until_shares(record.shares)

    async def shifted(_: Colours | None) -> Colours:
        return record.with_shares(ALL_GREEN, 1, "test")

    await running.log.write(shifted)
    await running.until_shares(ALL_GREEN)


async def test_commands_read_what_it_sees(running: RunningService) -> None:
    assert (await running.served.runs("blue"), await running.served.waits_for("blue")) == (True, [])
    assert await running.served.kafka("green") == "green-kafka:9092"
    assert await running.served.waits_for("green") == ["try-hifi-egest: 1 of 2 instances are ready"]
    with pytest.raises(Misconfigured, match=r"green cannot be put to sleep: .*`helm uninstall green`"):
        await running.served.check_sleep("green")
    with pytest.raises(Misconfigured, match=r"blue cannot be put to sleep: .*but that of `colours` to 0"):
        await running.served.check_sleep("blue")
    assert running.log.newest is not None
    assert running.log.newest.colours["green"].state is ColourState.IDLE


async def test_it_is_not_ready_while_no_gateway_takes_the_route_and_says_why(running: RunningService) -> None:
    health = running.service.health
    running.api.accepts = False
    await running.until(lambda: not health.ready)
    [reason] = health.waiting.values()
    assert "the Gateway gateway refuses it: NotAllowedByListeners" in reason
    running.api.accepts = True
    await running.until(lambda: health.ready)


async def test_weights_that_an_upgrade_has_set_are_set_again(running: RunningService) -> None:
    backends = [{"name": name, "port": 8080, "weight": 1} for name in BACKENDS.values()]
    await running.api.merge(*ROUTE_KEY, {"spec": {"rules": [{"backendRefs": backends}]}})
    await running.until_shares({"blue": 5_000, "green": 5_000})
    await running.until_shares({"blue": 10_000, "green": 0})


async def test_commands_read_whether_the_gateway_has_taken_the_shares(running: RunningService) -> None:
    front = FrontAddress("https://events.example", "")
    assert await running.served.shares(front) == {"blue": 10_000, "green": 0}
    running.api.accepts = False
    with pytest.raises(Retryable, match="the Gateway gateway refuses it"):
        await running.served.shares(front)
