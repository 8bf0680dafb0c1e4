"""The Helm chart with real pods on a real Kubernetes node: no event is lost, whatever happens to pods."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from tests.support.helm.chart import ROOT, find_helm
from tests.support.helm.flights import MASK_KEY, Flights, write_pipes
from tests.support.helm.release import IMAGES, NAMESPACE, RELEASE, WITHIN_S, WRITE_KEY, Release
from tests.support.kubernetes.node import Node, node, until

pytestmark = [pytest.mark.more, pytest.mark.timeout(5400)]

FLIGHTS: Final = ("--set", "pipes.files.orders\\.yaml=null", "--set", "pipes.claim=flights")
"""The pipe of the demo, on a volume."""
DESTINATION: Final = f"http://{RELEASE}-hifi-destination:9100"
RATE: Final = 150


@pytest.fixture(scope="module")
def tag() -> str:
    """Tag of the images; skips the tests where the engine has none."""
    tag_option = os.environ.get("HIFI_TEST_TAG", "test")
    engine = subprocess.run([ROOT / "infra/docker/engine.sh"], capture_output=True, text=True, check=False)
    if engine.returncode != 0:
        pytest.skip(f"no Docker engine: {engine.stderr.strip()}")
    os.environ["DOCKER_HOST"] = engine.stdout.strip()
    for image in IMAGES:
        inspected = subprocess.run(
            ["docker", "image", "inspect", f"hifi-{image}:{tag_option}"], capture_output=True, check=False
        )
        if inspected.returncode != 0:
            pytest.skip(f"no image hifi-{image}:{tag_option}: `make images HIFI_TAG={tag_option}`")
    return tag_option


@pytest.fixture(scope="module")
def cluster(tag: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node with the images."""
    with node(tmp_path_factory.mktemp("node")) as running:
        running.load_images(*(f"hifi-{image}:{tag}" for image in IMAGES))
        yield running


@pytest.fixture(scope="module")
def release(cluster: Node, tag: str) -> Release:
    """The release, as docs/kubernetes.md installs it; its images are the node's."""
    cluster.ask("create", "namespace", NAMESPACE)
    cluster.ask("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=restricted")
    secret = {"write_key": WRITE_KEY, "mask_key": MASK_KEY, "manage_token": f"hifi_{'0' * 64}"}
    literals = [f"--from-literal={key}={value}" for key, value in secret.items()]
    cluster.ask("-n", NAMESPACE, "create", "secret", "generic", "hifi-try", *literals)
    installed = Release(cluster, find_helm(), tag)
    installed.deploy()
    return installed


@pytest.fixture(scope="module")
def flights(release: Release) -> Release:
    """The release with the pipe of the demo, on a volume of the node."""
    write_pipes(release.node.folder / "pipes", DESTINATION)
    size, mode = {"storage": "100Mi"}, ["ReadOnlyMany"]
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "flights"},
        "spec": {
            "capacity": size,
            "accessModes": mode,
            "storageClassName": "",
            "hostPath": {"path": "/run/node/pipes"},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "flights"},
        "spec": {
            "accessModes": mode,
            "storageClassName": "",
            "volumeName": "flights",
            "resources": {"requests": size},
        },
    }
    for resource in (volume, claim):
        release.ask("apply", "-f", "-", input_text=json.dumps(resource))
    release.deploy(*FLIGHTS)
    return release


def delivered(release: Release, sent: Flights, tmp_path: Path) -> None:
    """Check that all deliveries of some events arrive, with the right values."""
    log = tmp_path / "requests.log"

    def all_arrived() -> bool:
        release.copy_request_log(log)
        return not sent.compare(log).lost

    until(all_arrived, "every delivery has arrived", WITHIN_S)
    arrivals = sent.compare(log)
    print(
        f"{len(sent.expected)} events, {sum(sent.by_path.values())} deliveries, {arrivals.repeated} repeated"
    )
    assert arrivals.wrong == []


def test_a_release_becomes_ready_and_helm_test_sees_an_event_arrive(release: Release) -> None:
    tested = release.run_helm("test", RELEASE, "--logs", f"--timeout={WITHIN_S}s")
    assert tested.returncode == 0, f"{tested.stdout}\n{release.state()}"
    assert "has arrived at each destination that wants it" in tested.stdout


def test_nothing_is_lost_while_pods_are_killed_and_evicted(flights: Release, tmp_path: Path) -> None:
    sent = Flights.write(tmp_path / "events.ndjson", 30_000)
    sending = flights.send(sent, RATE)
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
    delivered(flights, sent, tmp_path)
