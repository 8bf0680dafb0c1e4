"""What is seen of a colour that is a Helm release: on a model of the API, and on a real API server."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.support.kubernetes.egest_deployment import NAME, egest_body
from tests.support.kubernetes.egest_service import EgestService

from hifi_infra.kubernetes import release_colour
from hifi_infra.kubernetes.kubernetes_api import KubernetesApi
from hifi_infra.kubernetes.release_colour import ReleaseColour
from hifi_infra.kubernetes.service_deployment import COMPONENT


async def set_replicas(egest: EgestService, replicas: int) -> None:
    """Scale egest as a person does."""
    version = (await egest.deployment())["metadata"]["resourceVersion"]
    change = {"metadata": {"resourceVersion": version}, "spec": {"replicas": replicas}}
    await egest.api.merge("apps/v1", "deployments", NAME, change)


class UnevenApi(KubernetesApi):
    """The API of a release with two ready instances of three of egest, and none of its control plane."""

    def __init__(self) -> None:
        """It has no session."""
        self.lists = 0

    async def list(self, group: str, kind: str, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        """As `KubernetesApi.list`."""
        assert (group, kind) == ("apps/v1", "deployments")
        self.lists += 1
        egest = egest_body(3)
        colours = {
            "metadata": {"name": "try-hifi-colours", "labels": {**labels, COMPONENT: "colours"}},
            "spec": {"replicas": 1},
        }
        return [egest | {"status": {"readyReplicas": 2}}, colours]


async def test_a_release_runs_and_is_ready_once_all_instances_are(egest: EgestService) -> None:
    colour = ReleaseColour(egest.api, "try")
    assert not colour.was_started
    assert (await colour.is_running(), await colour.waits_for()) == (True, [])


async def test_instances_that_events_pass_and_that_are_not_ready_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(release_colour, "_KEPT_S", 600.0)
    api = UnevenApi()
    colour = ReleaseColour(api, "try")
    assert await colour.is_running()
    for _ in range(3):
        assert await colour.waits_for() == [f"{NAME}: 2 of 3 instances are ready"]
    assert api.lists == 1, "one answer of the API is used for a while"


async def test_a_release_without_ready_instances_has_ended(egest: EgestService) -> None:
    colour = ReleaseColour(egest.api, "try")
    assert await colour.is_running()
    await set_replicas(egest, 0)

    async def has_ended() -> bool:
        return not await colour.is_running()

    await egest.until(has_ended, "no instance is ready")
    assert colour.was_started, "the service has seen it run, so its requests go to the other colour"
    assert await colour.waits_for() == [f"{NAME}: 0 of 0 instances are ready"]


async def test_a_release_that_is_not_there_does_not_run(egest: EgestService) -> None:
    colour = ReleaseColour(egest.api, "other")
    assert (await colour.is_running(), colour.was_started) == (False, False)
    assert await colour.waits_for() == ["the Helm release other has no Deployment"]


class EndedApi(KubernetesApi):
    """The API of a release of which no instance is ready, with the reason of the condition `Progressing` of egest."""

    def __init__(self, reason: str) -> None:
        """It has no session."""
        self._reason = reason

    async def list(self, group: str, kind: str, labels: Mapping[str, str]) -> list[dict[str, Any]]:
        """As `KubernetesApi.list`."""
        assert (group, kind, labels["app.kubernetes.io/instance"]) == ("apps/v1", "deployments", "try")
        conditions = [
            {"type": "Available", "status": "False", "reason": "MinimumReplicasUnavailable"},
            {"type": "Progressing", "status": "True", "reason": self._reason},
        ]
        return [egest_body(3) | {"status": {"conditions": conditions}}]


@pytest.mark.parametrize(
    ("reason", "has_run"),
    [("NewReplicaSetAvailable", True), ("ReplicaSetUpdated", False), ("ProgressDeadlineExceeded", False)],
)
async def test_a_release_that_has_ended_before_the_service_began_is_told_from_one_that_is_being_installed(
    reason: str, has_run: bool
) -> None:
    colour = ReleaseColour(EndedApi(reason), "try")
    assert (await colour.is_running(), colour.was_started) == (False, has_run)


def test_the_release_with_the_front_of_both_colours_is_not_to_be_uninstalled() -> None:
    assert ReleaseColour(UnevenApi(), "green").no_sleep.endswith("drain it, then `helm uninstall green`")
    no_sleep = ReleaseColour(UnevenApi(), "blue", has_front=True).no_sleep
    assert "helm uninstall" not in no_sleep
    assert "scale all Deployments of the release blue but that of `colours` to 0" in no_sleep
