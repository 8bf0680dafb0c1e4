"""Pods as the API describes them, and their use as metrics-server tells it."""

from typing import Any

import pytest

from hifi.runtime.errors import Misconfigured
from hifi_infra.kubernetes.deployment_mesh import read_each
from hifi_infra.kubernetes.fenced_changes import FENCE_ANNOTATION, token_of
from hifi_infra.kubernetes.service_deployment import RELEASE
from hifi_infra.kubernetes.service_pod import read, read_usage


def described(*, restarts: int = 0, ready: str = "True", **metadata: Any) -> dict[str, Any]:
    """A pod of egest that was ready 4 s after its start."""
    return {
        "metadata": {
            "name": "try-hifi-egest-6d9f7c-x2x4z",
            "labels": {"app.kubernetes.io/component": "egest"},
            "creationTimestamp": "2026-11-24T23:57:59Z",
            **metadata,
        },
        "spec": {"containers": [{"image": "registry:5000/hifi-egest:1.2"}]},
        "status": {
            "phase": "Running",
            "podIP": "10.244.0.5",
            "conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": "2026-11-24T23:58:05Z"}],
            "containerStatuses": [
                {"restartCount": restarts, "state": {"running": {"startedAt": "2026-11-24T23:58:01Z"}}}
            ],
        },
    }


def test_a_pod_is_read_with_what_the_executor_tells() -> None:
    pod = read(described(), "1.2")
    assert (pod.service, pod.release, pod.address, pod.ending) == ("egest", "installed", "10.244.0.5", False)
    assert (pod.ready_since_s, pod.ready_after_s) == (1_795_564_685.0, 4.0)
    assert read(described(annotations={RELEASE: "1.2"}), "1.2").release == "1.2"
    assert read(described(deletionTimestamp="2026-11-24T23:59:00Z"), "1.2").ending


def test_a_pod_that_is_not_ready_or_has_no_container_yet_is_read() -> None:
    unready_pod = read(described(ready="False"), "1.2")
    assert (unready_pod.ready_since_s, unready_pod.ready_after_s) == (None, None)
    pending_pod = read(described() | {"status": {"phase": "Pending"}}, "1.2")
    assert (pending_pod.ready_since_s, pending_pod.restarts, pending_pod.address) == (None, 0, "")


def test_after_a_restart_nobody_knows_how_long_the_start_took() -> None:
    pod = read(described(restarts=1), "1.2")
    assert (pod.ready_since_s, pod.ready_after_s, pod.restarts) == (1_795_564_685.0, None, 1)


def test_the_use_of_a_pod_is_that_of_all_its_containers_in_a_window() -> None:
    usage = read_usage(
        {
            "metadata": {"name": "a"},
            "timestamp": "2026-11-24T23:58:05Z",
            "window": "15.5s",
            "containers": [
                {"usage": {"cpu": "250m", "memory": "100Mi"}},
                {"usage": {"cpu": "1000000n", "memory": "1Mi"}},
            ],
        }
    )
    assert (usage.name, usage.rss_bytes, usage.until_s - usage.since_s) == ("a", 101 * 2**20, 15.5)
    assert usage.cores == pytest.approx(0.251)


def test_a_pod_that_cannot_be_read_is_left_out_alone() -> None:
    unlabelled_pod = described(labels={}, name="a-job")
    read_pods = read_each([unlabelled_pod, described(), {"metadata": None}], lambda pod: read(pod, "1.2"))
    assert [pod.service for pod in read_pods] == ["egest"]


def test_a_token_that_somebody_has_changed_is_named() -> None:
    assert token_of({"name": "egest", "annotations": {FENCE_ANNOTATION: "7"}}) == 7
    with pytest.raises(Misconfigured, match=r"io.github.hifi/step of egest is 'x'"):
        token_of({"name": "egest", "annotations": {FENCE_ANNOTATION: "x"}})
