"""Canary, batches, roll-back and fencing on Kubernetes: on a model of it, and on a real API server."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.infra.kubernetes.conftest import COUNT
from tests.support.kubernetes.egest_service import EgestService

from hifi.runtime.errors import Misconfigured, Retryable
from hifi_infra.kubernetes.service_deployment import CANARY

pytestmark = pytest.mark.timeout(1200)


async def test_a_canary_that_is_good_replaces_one_instance_after_the_other(egest: EgestService) -> None:
    old_names = await egest.names("installed")
    assert len(old_names) == COUNT
    await egest.executor(1).set_release("egest-1", "1.4", "a canary")
    assert await egest.names("1.4") == ["egest-1"]
    assert await egest.names("installed") == old_names, "the canary is one more instance"
    await egest.executor(2).set_release("egest-1", "1.4", "asked again")
    assert await egest.names("1.4") == ["egest-1"]
    for token, replaced_count in ((3, 1), (4, 2), (5, 3)):
        [next_name, *_] = await egest.names("installed")
        await egest.executor(token).set_release(next_name, "1.4", "a batch")
        assert len(await egest.names("installed")) == COUNT - replaced_count
        assert len(await egest.names("1.4")) == min(COUNT, replaced_count + 1)
    pods = {instance.member for instance in await egest.instances()}
    await egest.executor(6).remove("egest-1", "in force")
    await egest.executor(7).remove("egest-1", "asked again")
    await egest.executor(8).set_default_release("egest", "1.4")
    await egest.until_done()
    instances = await egest.instances()
    assert {instance.member for instance in instances} == pods, "no instance was started twice"
    assert all(instance.name.startswith("try-hifi-egest-") for instance in instances)
    assert egest.api.lowest_ready >= COUNT
    assert await egest.image() == "registry:5000/hifi-egest:1.4"


async def test_a_canary_that_is_bad_ends_and_its_peers_stay(egest: EgestService) -> None:
    old_names = await egest.names("installed")
    await egest.executor(1).set_release("egest-1", "broken", "a canary")
    [canary] = [instance for instance in await egest.instances() if instance.release == "broken"]
    assert (canary.name, canary.ready) == ("egest-1", False)
    await egest.executor(2).remove("egest-1", "it was not ready")
    await egest.until_done()
    assert await egest.names("installed") == old_names
    assert egest.api.lowest_ready == COUNT
    assert CANARY not in (await egest.deployment())["metadata"]["annotations"]


async def test_a_release_that_is_found_bad_after_a_batch_goes_back(egest: EgestService) -> None:
    await egest.executor(1).set_release("egest-1", "1.4", "a canary")
    [first_name, *_] = await egest.names("installed")
    await egest.executor(2).set_release(first_name, "1.4", "a batch")
    assert len(await egest.names("1.4")) == 2
    await egest.executor(3).remove("egest-1", "it was worse")
    for instance in await egest.instances():
        await egest.executor(4).set_release(instance.name, "installed", "it was worse")
    await egest.until_done()
    assert len(await egest.names("installed")) == COUNT
    assert egest.api.lowest_ready >= COUNT


async def test_an_abort_when_every_instance_was_replaced_goes_back(egest: EgestService) -> None:
    await egest.executor(1).set_release("egest-1", "1.4", "a canary")
    for token in (2, 3, 4):
        [next_name, *_] = await egest.names("installed")
        await egest.executor(token).set_release(next_name, "1.4", "a batch")
    await egest.executor(5).remove("egest-1", "aborted")
    [first_name, *_] = await egest.names("1.4")
    await egest.executor(6).set_release(first_name, "installed", "aborted")
    await egest.until_done()
    assert len(await egest.names("installed")) == COUNT
    assert egest.api.lowest_ready >= COUNT


async def test_a_canary_whose_pod_was_lost_is_started_again_under_its_name(egest: EgestService) -> None:
    await egest.executor(1).set_release("egest-1", "1.4", "a canary")
    [canary] = [instance for instance in await egest.instances() if instance.release == "1.4"]
    pod = canary.member.removesuffix("-")
    await egest.api.delete_pod(pod)
    await egest.executor(2).set_release("egest-1", "1.4", "a canary")
    assert await egest.names("1.4") == ["egest-1"]
    assert (await egest.instances())[0].member != canary.member
    await egest.executor(3).set_release("egest-1", "installed", "deploy has forgotten it")
    await egest.until_done()


async def test_what_cannot_be_is_refused_and_changes_nothing(egest: EgestService) -> None:
    version = (await egest.deployment())["metadata"]["generation"]
    with pytest.raises(Misconfigured, match="1 4 is no tag of an image"):
        await egest.executor(1).set_release("egest-1", "1 4", "")
    assert (await egest.deployment())["metadata"]["generation"] == version
    await egest.executor(2).set_release("egest-1", "1.4", "a canary")
    version = (await egest.deployment())["metadata"]["generation"]
    with pytest.raises(Misconfigured, match=r"egest-1 of 1\.4 is a canary of egest already"):
        await egest.executor(3).set_release("egest-2", "1.5", "another canary")
    with pytest.raises(Retryable, match="a deployment of egest runs"):
        await egest.executor(3).scale("egest", COUNT + 1)
    assert (await egest.deployment())["metadata"]["generation"] == version


async def test_a_release_goes_on_with_another_executor_and_not_with_one_that_was_frozen(
    egest: EgestService,
) -> None:
    frozen = egest.executor(1)
    await frozen.set_release("egest-1", "1.4", "a canary")
    [first_name, *_] = await egest.names("installed")
    await egest.executor(2).set_release(first_name, "1.4", "a batch")
    [second_name, *_] = await egest.names("installed")  # Kubernetes chooses the pod that it replaces
    version = (await egest.deployment())["metadata"]["generation"]
    for late_change in (
        frozen.set_release(second_name, "1.4", "a batch"),
        frozen.set_release("egest-2", "1.5", "a canary"),
        frozen.remove("egest-1", "it was worse"),
        frozen.set_default_release("egest", "1.5"),
        frozen.scale("egest", 1),
    ):
        with pytest.raises(Retryable, match="the action 1 is over: action 2 has changed egest since"):
            await late_change
    assert (await egest.deployment())["metadata"]["generation"] == version
    assert await egest.names("1.4") != []


async def test_an_executor_that_was_frozen_between_reading_and_writing_starts_no_canary(
    egest: EgestService, monkeypatch: pytest.MonkeyPatch
) -> None:
    second, frozen = egest.executor(4), egest.executor(3)
    merge, other_actions = egest.api.merge, [lambda: second.scale("egest", COUNT + 1, "a later action")]

    async def merge_after_another(
        group: str, kind: str, name: str, change: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Let another executor act before the first change that the frozen one writes."""
        if other_actions:
            await other_actions.pop()()
        return await merge(group, kind, name, change)

    monkeypatch.setattr(egest.api, "merge", merge_after_another)
    with pytest.raises(Retryable, match="the action 3 is over: action 4 has changed egest since"):
        await frozen.set_release("egest-1", "1.4", "an earlier action")
    assert (await egest.deployment())["spec"]["replicas"] == COUNT + 1
    assert CANARY not in (await egest.deployment())["metadata"]["annotations"]
    assert await egest.image() == "registry:5000/hifi-egest:1"


async def test_the_cpu_that_an_instance_needed_to_start_does_not_count(egest: EgestService) -> None:
    mesh = egest.executor(1)
    egest.api.window = "1h0m0s"
    await mesh.refresh()
    await mesh.refresh()
    assert {instance.rss_bytes for instance in mesh.executed()} == {50 * 2**20}
    assert {instance.used_s for instance in mesh.executed()} == {0.0}
    egest.api.window = "0s"
    await mesh.refresh()
    assert all(instance.used_s > 0.0 for instance in mesh.executed())


async def test_without_metrics_a_canary_starts_and_goes_back_and_use_is_unknown(egest: EgestService) -> None:
    egest.api.has_metrics = False
    await egest.executor(1).set_release("egest-1", "1.4", "a canary")
    assert await egest.names("1.4") == ["egest-1"]
    assert {instance.measured for instance in await egest.instances()} == {False}
    await egest.executor(2).remove("egest-1", "it was worse")
    await egest.until_done()
    assert len(await egest.names("installed")) == COUNT
