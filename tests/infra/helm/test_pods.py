"""The Helm chart with real pods on a real Kubernetes node: no event is lost, whatever happens to pods."""

import subprocess
from pathlib import Path
from typing import Final

import pytest
from tests.support.helm.chart import CHART
from tests.support.helm.flights import Flights
from tests.support.helm.release import RELEASE, WITHIN_S, Release, set_values
from tests.support.kubernetes.node import until

from hifi_infra.kubernetes.fenced_changes import FENCE_ANNOTATION

pytestmark = [pytest.mark.more, pytest.mark.timeout(5400)]

RATE: Final = 150
"""Of the demo, events a second."""
CHANGED: Final = ("ingest", "normalize", "egest", "retrier")
DOWN_AFTER_S: Final = 15
METRICS_SERVER: Final = ("-n", "kube-system", "scale", "deployment", "metrics-server")
SCALED: Final = (
    "autoscaling.enabled=true",
    "autoscaling.cpu=30m",
    f"autoscaling.downAfterSeconds={DOWN_AFTER_S}",
    *(f"services.{service}.min=1" for service in CHANGED),
    *(f"services.{service}.max=1" for service in ("ingest", "normalize", "retrier")),
    "services.egest.max=2",
)
CONTROL: Final = (
    "control.enabled=true",
    "control.executor.enabled=true",
    "control.executor.secret=hifi-try",
    "services.rollout.enabled=false",
    "services.deploy.enabled=false",
    "services.manage.enabled=false",
    f"autoscaling.downAfterSeconds={DOWN_AFTER_S}",
    *(f"services.{service}.{bound}=1" for service in ("normalize", "retrier") for bound in ("min", "max")),
    "services.egest.max=2",
)

DEPLOYING: Final = (
    "control.enabled=true",
    "control.executor.enabled=true",
    "control.executor.secret=hifi-try",
    "services.rollout.enabled=false",
    "services.manage.enabled=false",
    "services.scale.enabled=false",
    "services.deploy.env.HIFI_DEPLOY_STABLE_S=10",
    "services.deploy.env.HIFI_DEPLOY_EVENTS=100",
    "services.deploy.env.HIFI_DEPLOY_READY_S=120",
)


def test_a_release_becomes_ready_and_helm_test_sees_an_event_arrive(release: Release) -> None:
    tested = release.run_helm("test", RELEASE, "--logs", f"--timeout={WITHIN_S}s")
    assert tested.returncode == 0, f"{tested.stdout}\n{release.state()}"
    assert "has arrived at each destination that wants it" in tested.stdout


def test_nothing_is_lost_while_pods_are_killed_and_evicted(flights: Release, tmp_path: Path) -> None:
    sent_flights = Flights.write(tmp_path / "events.ndjson", 30_000)
    sending = flights.send(sent_flights, RATE)
    until(lambda: sum(flights.counts().values()) > 1_000, "the first events arrive")
    for component in ("normalize", "egest", "ingest"):
        flights.evict(flights.pod(component))
        flights.wait_ready(component)
    for component in ("egest", "enrich", "normalize", "ingest", "retrier"):
        flights.kill(flights.pod(component))
        flights.wait_ready(component)
    result = sending.result()
    print(result)
    assert result["accepted"] == 30_000
    flights.wait_delivered(sent_flights, tmp_path)


def test_an_upgrade_a_roll_back_and_a_failed_upgrade_lose_nothing(flights: Release, tmp_path: Path) -> None:
    sent_flights = Flights.write(tmp_path / "events.ndjson", 6_000, first=30_000)
    sending = flights.send(sent_flights, 50)
    pods_before = {component: flights.pod(component) for component in CHANGED}
    options = [
        word
        for component in CHANGED
        for word in ("--set-string", f"services.{component}.podAnnotations.upgrade=2")
    ]
    flights.deploy(*options)
    assert [component for component in CHANGED if flights.pod(component) == pods_before[component]] == []
    [job] = flights.get("jobs")["items"]
    assert job["status"]["succeeded"] == 1
    rolled_back = flights.run_helm("rollback", RELEASE, *flights.waiting)
    assert rolled_back.returncode == 0, f"{rolled_back.stdout}\n{flights.state()}"
    [egest] = flights.pods("egest")
    assert "upgrade" not in egest["metadata"].get("annotations", {})
    broken_values = (*flights.values(), "--set", "services.egest.secrets={missing}")
    failed_upgrade = flights.run_helm(
        "upgrade", RELEASE, str(CHART), *broken_values, "--atomic", "--timeout=60s"
    )
    assert failed_upgrade.returncode != 0
    assert "has been rolled back" in failed_upgrade.stdout
    assert flights.pod("egest") == egest["metadata"]["name"]
    assert sending.result()["accepted"] == 6_000
    flights.wait_delivered(sent_flights, tmp_path)


def test_a_drain_waits_for_the_disruption_budget_and_loses_nothing(flights: Release, tmp_path: Path) -> None:
    sent_flights = Flights.write(tmp_path / "events.ndjson", 3_000, first=36_000)
    flights.deploy("--set", "services.egest.replicas=2")
    sending = flights.send(sent_flights, 50)
    names_before = {pod["metadata"]["name"] for pod in flights.pods("egest")}
    assert len(names_before) == 2
    log = tmp_path / "drain.log"
    drain = ("drain", "node1", "--pod-selector=app.kubernetes.io/component=egest", "--delete-emptydir-data")
    with log.open("wb") as output:
        draining = subprocess.Popen(
            flights.node.command(*flights.node.kubectl_words, *drain, f"--timeout={WITHIN_S}s"),
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        until(lambda: "violate the pod's disruption budget" in log.read_text(), "the budget holds the drain")
        [remaining_pod] = [
            pod["metadata"]["name"] for pod in flights.pods("egest") if pod["spec"].get("nodeName")
        ]
        assert remaining_pod in names_before
        until(lambda: flights.ready("egest") == 1, "the first instance is gone")
    finally:
        flights.node.ask("uncordon", "node1")
    assert draining.wait(WITHIN_S) == 0, log.read_text()
    until(lambda: flights.ready("egest") == 2, "the next instances are ready")
    assert names_before.isdisjoint(pod["metadata"]["name"] for pod in flights.pods("egest"))
    assert sending.result()["accepted"] == 3_000
    flights.wait_delivered(sent_flights, tmp_path)


def test_instances_follow_the_load_and_stay_while_the_metric_is_missing(
    flights: Release, tmp_path: Path
) -> None:
    sent_flights = Flights.write(tmp_path / "events.ndjson", 30_000, first=40_000)
    flights.deploy(*set_values(*SCALED))
    until(lambda: flights.has_metric("egest"), "the CPU of egest is known")
    assert flights.ready("egest") == 1
    sending = flights.send(sent_flights, 200)
    until(lambda: flights.ready("egest") == 2, "egest has grown")
    flights.node.ask(*METRICS_SERVER, "--replicas=0")
    until(lambda: not flights.has_metric("egest"), "the CPU of egest is unknown")
    assert sending.result()["accepted"] == 30_000
    flights.wait_delivered(sent_flights, tmp_path)
    flights.stay("egest", 2, 4 * DOWN_AFTER_S)
    assert not flights.has_metric("egest")
    flights.node.ask(*METRICS_SERVER, "--replicas=1")
    until(lambda: flights.ready("egest") == 1, "egest has shrunk, once its CPU is known again")


def test_scale_changes_deployments_and_stops_while_the_metric_is_missing(flights: Release) -> None:
    flights.deploy(*set_values(*CONTROL, "services.egest.min=2"))
    until(lambda: flights.ready("egest") == 2, "scale has added an instance, as the bounds say")
    deployment = flights.get("deployment", f"{RELEASE}-hifi-egest")
    token = int(deployment["metadata"]["annotations"][FENCE_ANNOTATION])
    flights.node.ask(*METRICS_SERVER, "--replicas=0")
    flights.deploy(*set_values(*CONTROL, "services.egest.min=1"))
    until(lambda: "the CPU of instances is unknown" in flights.logs("scale"), "scale waits")
    flights.stay("egest", 2, 4 * DOWN_AFTER_S)
    flights.node.ask(*METRICS_SERVER, "--replicas=1")
    until(lambda: len(flights.pods("egest")) == 1, "scale has removed an instance")
    deployment = flights.get("deployment", f"{RELEASE}-hifi-egest")
    assert int(deployment["metadata"]["annotations"][FENCE_ANNOTATION]) > token


def test_deploy_gives_egest_another_release_or_the_one_before_and_loses_nothing(
    flights: Release, tmp_path: Path
) -> None:
    sent_flights = Flights.write(tmp_path / "events.ndjson", 30_000, first=70_000)
    flights.deploy(*set_values(*DEPLOYING))
    flights.tag_image("egest", "next")
    sending = flights.send(sent_flights, 50)

    def settled(tag: str) -> bool:
        """Whether all instances of egest are ready and of a tag, and no release is judged."""
        deployment = flights.get("deployment", f"{RELEASE}-hifi-egest")
        images = [pod["spec"]["containers"][0]["image"] for pod in flights.pods("egest")]
        is_judged = "minReadySeconds" in deployment["spec"]
        return (
            not is_judged and len(images) == flights.ready("egest") and set(images) == {f"hifi-egest:{tag}"}
        )

    flights.run_hifi("deploy", "start", "egest", "next")
    until(lambda: settled("next"), "every instance of egest runs the release")
    flights.run_hifi("deploy", "start", "egest", "absent")
    until(lambda: "egest-1 was not ready" in flights.logs("deploy"), "the canary has no image")
    until(lambda: settled("next"), "every instance of egest runs the release before")
    assert sending.result()["accepted"] == 30_000
    flights.wait_delivered(sent_flights, tmp_path)
