"""The changes that give a Deployment's pods another release, as bodies."""

from typing import Any

import pytest
from tests.support.kubernetes.modelled_api import merged

from hifi.runtime.errors import Misconfigured
from hifi_infra.kubernetes.fenced_changes import FENCE_ANNOTATION
from hifi_infra.kubernetes.service_deployment import (
    BEFORE,
    CANARY,
    NEVER_AVAILABLE_S,
    RELEASE,
    ServiceDeployment,
    read,
)

INSTALLED_TAG = "1.2"


def described(**changes: Any) -> dict[str, Any]:
    """The Deployment of egest, three instances of the installed release."""
    container = {
        "name": "egest",
        "image": "registry:5000/hifi-egest:1.2",
        "env": [{"name": "A", "value": "1"}],
    }
    return {
        "metadata": {
            "name": "try-hifi-egest",
            "labels": {"app.kubernetes.io/component": "egest"},
            "resourceVersion": "77",
            "generation": 4,
            "annotations": {FENCE_ANNOTATION: "5"},
        },
        "spec": {
            "replicas": 3,
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {"labels": {}, "annotations": {"team": "a"}},
                "spec": {"containers": [container, {"name": "other", "image": "other:1"}]},
            },
        },
        "status": {"observedGeneration": 4, "replicas": 3, "updatedReplicas": 3},
    } | changes


def changed(deployment: dict[str, Any], change: Any) -> tuple[dict[str, Any], ServiceDeployment]:
    """The Deployment after a change, as the API has it and as it is read."""
    described_deployment = merged(deployment, change)
    return described_deployment, read(described_deployment, INSTALLED_TAG)


def test_a_deployment_is_read() -> None:
    deployment = read(described(), INSTALLED_TAG)
    assert (deployment.service, deployment.count, deployment.release) == ("egest", 3, "installed")
    assert (deployment.canary, deployment.before, deployment.replaced) == ("", "", 0)
    assert (deployment.version, deployment.token, deployment.rolling) == ("77", 5, False)
    assert read(described(status={}), INSTALLED_TAG).rolling, "no controller has seen it"
    behind = {"observedGeneration": 4, "replicas": 4, "updatedReplicas": 1}
    assert read(described(status=behind), INSTALLED_TAG).rolling


def test_a_canary_and_batches_are_numbers_of_the_deployment() -> None:
    description_before = described()
    state, deployment = changed(
        description_before,
        read(description_before, INSTALLED_TAG).canary_change("egest-1", "1.4", INSTALLED_TAG),
    )
    assert (deployment.release, deployment.canary, deployment.before) == ("1.4", "egest-1", "installed")
    assert state["spec"]["minReadySeconds"] == NEVER_AVAILABLE_S < state["spec"]["progressDeadlineSeconds"]
    for replaced in (1, 2):
        state, deployment = changed(state, deployment.replacement_change())
        assert deployment.replaced == replaced
        assert state["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": replaced}
    [egest, other] = state["spec"]["template"]["spec"]["containers"]
    assert egest == description_before["spec"]["template"]["spec"]["containers"][0] | {
        "image": "registry:5000/hifi-egest:1.4"
    }
    assert other == {"name": "other", "image": "other:1"}
    state, deployment = changed(state, deployment.whole_change("1.4", INSTALLED_TAG))
    assert (deployment.release, deployment.canary, deployment.replaced) == ("1.4", "", 0)
    assert state["spec"]["minReadySeconds"] == 0
    assert not {CANARY, BEFORE} & state["metadata"]["annotations"].keys()


@pytest.mark.parametrize("release_before", ["installed", "1.3", INSTALLED_TAG])
def test_the_way_back_has_the_template_of_before_so_that_its_pods_stay(release_before: str) -> None:
    state = described()
    state, deployment = changed(state, read(state, INSTALLED_TAG).whole_change(release_before, INSTALLED_TAG))
    template = state["spec"]["template"]
    state, deployment = changed(state, deployment.canary_change("egest-1", "1.4", INSTALLED_TAG))
    assert state["spec"]["template"]["metadata"]["annotations"] == {"team": "a", RELEASE: "1.4"}
    assert deployment.before == release_before
    state, deployment = changed(state, deployment.whole_change(deployment.before, INSTALLED_TAG))
    assert state["spec"]["template"] == template
    assert deployment.release == release_before


def test_an_upgrade_by_helm_ends_a_judgement() -> None:
    state = described()
    state, _ = changed(state, read(state, INSTALLED_TAG).canary_change("egest-1", "1.4", INSTALLED_TAG))
    _, deployment = changed(state, {"spec": {"minReadySeconds": 0}})
    assert (deployment.canary, deployment.before, deployment.replaced) == ("", "", 0)


def test_a_release_that_is_no_tag_is_refused() -> None:
    with pytest.raises(Misconfigured, match=r"\.\./x is no tag of an image"):
        read(described(), INSTALLED_TAG).canary_change("egest-1", "../x", INSTALLED_TAG)
