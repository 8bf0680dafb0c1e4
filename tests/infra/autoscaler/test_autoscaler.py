"""Measurements reach the decision, and the decision reaches the mesh."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from hifi.runtime.errors import Misconfigured, Retryable
from hifi_infra.autoscaler.autoscaler import Autoscaler, read_autoscale
from hifi_infra.autoscaler.policy import Policy

POLICY = Policy(
    min_instances=1, max_instances=3, cpu_high=0.7, backlog_high=1000, up_after_s=10, down_after_s=30
)


@dataclass
class FakeInstance:
    name: str
    used: float = 0.0

    def cpu_seconds(self) -> float:
        return self.used


@dataclass
class FakeMesh:
    """Burns `load` cores, shared by its instances; its clock goes on by hand."""

    load: float = 0.0
    now_s: float = 0.0
    backlog: int | None = 0
    occupancy: dict[str, float] = field(default_factory=dict)
    instances: dict[str, list[FakeInstance]] = field(
        default_factory=lambda: {"normalize": [FakeInstance("normalize-1")]}
    )

    async def scale(self, service: str, count: int, reason: str) -> None:
        assert reason
        group = self.instances.setdefault(service, [])
        del group[count:]
        group += [FakeInstance(f"{service}-{number}") for number in range(len(group) + 1, count + 1)]

    async def read_backlog(self) -> Mapping[str, int]:
        if self.backlog is None:
            raise Retryable("Kafka did not return its offsets")
        return {"normalize": self.backlog}

    async def read_occupancy(self) -> Mapping[str, float]:
        return self.occupancy

    async def live(self, scaler: Autoscaler, seconds: int) -> int:
        for _ in range(seconds // 5):
            self.now_s += 5
            group = self.instances["normalize"]
            for instance in group:
                instance.used += 5 * self.load / len(group)
            await scaler.adjust()
        return len(self.instances["normalize"])


@dataclass
class RefusingMesh(FakeMesh):
    """Refuses each scale-in, as while the stream is unstable."""

    refused: int = 0

    async def scale(self, service: str, count: int, reason: str) -> None:
        if count < len(self.instances[service]):
            self.refused += 1
            raise Retryable("the stream is unstable")
        await super().scale(service, count, reason)

    async def read_backlog(self) -> Mapping[str, int]:
        return {"egest": 0, **await super().read_backlog()}


def scaler_of(mesh: FakeMesh) -> Autoscaler:
    return Autoscaler(
        mesh, {"normalize": POLICY}, mesh.read_backlog, mesh.read_occupancy, clock=lambda: mesh.now_s
    )


async def test_a_service_follows_its_load_up_and_down() -> None:
    mesh = FakeMesh(load=1.2)
    scaler = scaler_of(mesh)
    assert await mesh.live(scaler, 60) == 2
    mesh.load = 0.05
    assert await mesh.live(scaler, 25) == 2
    assert await mesh.live(scaler, 60) == 1


async def test_a_service_follows_its_backlog() -> None:
    mesh = FakeMesh(backlog=2500)
    assert await mesh.live(scaler_of(mesh), 60) == 3


async def test_with_kafka_unreachable_the_size_stays() -> None:
    mesh = FakeMesh(load=1.2)
    scaler = scaler_of(mesh)
    assert await mesh.live(scaler, 60) == 2
    mesh.load, mesh.backlog = 0.0, None
    assert await mesh.live(scaler, 300) == 2


def test_bounds_are_read_and_nonsense_is_told() -> None:
    assert read_autoscale(["normalize=1-3", "egest=2-2"])["egest"] == Policy(
        min_instances=2, max_instances=2, has_lanes=True
    )
    for bounds in ("enrich=1-2", "normalize=3", "normalize=3-1", "normalize=0-2", "normalize=1-999"):
        with pytest.raises(Misconfigured, match=bounds):
            read_autoscale([bounds])


async def test_a_service_grows_although_another_one_may_not_shrink() -> None:
    mesh = RefusingMesh()
    mesh.instances = {"egest": [FakeInstance("egest-1"), FakeInstance("egest-2")], **mesh.instances}
    policies = {"egest": POLICY, "normalize": POLICY}
    scaler = Autoscaler(mesh, policies, mesh.read_backlog, mesh.read_occupancy, clock=lambda: mesh.now_s)
    for _ in range(40):
        mesh.now_s += 5
        mesh.backlog = 2500 if mesh.refused else 0
        with contextlib.suppress(Retryable):
            await scaler.adjust()
    assert {service: len(group) for service, group in mesh.instances.items()} == {"egest": 2, "normalize": 3}
    assert mesh.refused > 0


async def test_a_service_without_an_instance_gets_its_lower_bound() -> None:
    mesh = FakeMesh()
    scaler = scaler_of(mesh)
    del mesh.instances["normalize"]
    mesh.now_s += 5
    await scaler.adjust()
    assert len(mesh.instances["normalize"]) == 1
