"""A batch that may not be replaced now keeps what its canary has shown: the real deployer and judge, without I/O."""

import pytest
from tests.support.deploy.without_kafka import ForgetfulWriter, ImmediateRight

from hifi.control.releases.desired_release import DesiredRelease
from hifi.control.verdict import Condition, Verdict, Verdicts
from hifi_deploy import deployer
from hifi_deploy.deployer import Deployer
from hifi_deploy.desired_releases import DesiredReleases
from hifi_deploy.instance_reading import InstanceReading
from hifi_deploy.judge import JudgeRules

STABLE_S = 60.0
EVENTS_PER_S = 50


class Instances:
    """Two instances of egest that work, and those of the new release."""

    def __init__(self) -> None:
        self.releases = {"egest-1": "old", "egest-2": "old"}
        self.events: dict[str, int] = {}

    async def read(self, service: str) -> list[InstanceReading]:
        del service
        for name in self.releases:
            self.events[name] = self.events.get(name, 0) + EVENTS_PER_S
        return [
            InstanceReading(
                name, release, True, 1.0, 0, 0.0, 2**20, self.events[name], lag_s=0.0, partitions=2
            )
            for name, release in self.releases.items()
        ]

    async def set_release(self, name: str, release: str, reason: str, token: int) -> None:
        del reason, token
        self.releases[name] = release
        self.events[name] = 0

    async def remove(self, name: str, reason: str, token: int) -> None:
        del reason, token
        del self.releases[name]

    async def set_default_release(self, service: str, release: str, token: int) -> None:
        pass


async def test_a_batch_that_is_refused_because_the_stream_is_unstable_keeps_its_stable_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock_s = 1_000.0
    monkeypatch.setattr(deployer, "monotonic_s", lambda: clock_s)
    monkeypatch.setattr(deployer, "now_us", lambda: round(clock_s * 1_000_000))
    instances, right, desired, verdicts = Instances(), ImmediateRight(), DesiredReleases(), Verdicts()
    tested_deployer = Deployer(
        topic="deployments",
        rules=JudgeRules(STABLE_S, 100, 60, 5, 0.02),
        unstable_s=3600,
        driver=instances,
        desired=desired,
        verdicts=verdicts,
        right=right,
        writer=ForgetfulWriter(),
    )
    release = DesiredRelease("egest", "new", "ann", 0, 1)
    desired.take_release(b"egest", release.record().value, 7)

    async def reconcile(stream: Condition) -> None:
        """Let a second pass, and look."""
        nonlocal clock_s
        clock_s += 1
        now_us = round(clock_s * 1_000_000)
        for scope, condition in (("stream", stream), ("service/egest", Condition.STABLE)):
            verdicts.put(Verdict(scope, condition, now_us, now_us))
        await tested_deployer.reconcile()

    while len(right.summaries) < 1:
        await reconcile(Condition.STABLE)
    start_s = clock_s
    while "unstable" not in desired.deployments["egest"].reason:
        await reconcile(Condition.UNSTABLE)
        assert clock_s < start_s + 2 * STABLE_S, desired.deployments["egest"]
    assert clock_s >= start_s + STABLE_S, "the canary was judged first"
    for _ in range(30):
        await reconcile(Condition.UNSTABLE)
    assert right.summaries == ["canary egest-3: new"], "no batch while the stream is unstable"
    await reconcile(Condition.STABLE)
    assert right.summaries[1:] == ["egest-1: old to new"]
    assert instances.releases == {"egest-1": "new", "egest-2": "old", "egest-3": "new"}
    replaced_s = clock_s
    while len(right.summaries) < 3:
        await reconcile(Condition.STABLE)
    assert clock_s >= replaced_s + STABLE_S, "the next batch has a stable time of its own"
