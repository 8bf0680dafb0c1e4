"""Two colours as Helm releases with real pods: requests move from one to the other, and no event is lost."""

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.helm.chart import CHART, find_helm
from tests.support.helm.crds import install_crds
from tests.support.helm.flights import Flights
from tests.support.helm.namespace import NAMESPACE, create_namespace, create_pipes
from tests.support.helm.release import RELEASE, Release
from tests.support.kubernetes.gateway_process import PORT
from tests.support.kubernetes.node import Node, until
from tests.support.kubernetes.places import ADDRESS, NODE

pytestmark = [pytest.mark.more, pytest.mark.timeout(5400)]

RELEASES: Final = {"blue": RELEASE, "green": "green"}
KAFKA: Final = {colour: f"{release}-hifi-kafka:9092" for colour, release in RELEASES.items()}
DESTINATION: Final = f"{RELEASE}-hifi-destination:9100"
GATEWAY: Final = f"http://{ADDRESS}:{PORT}"
SERVICES: Final = ("ingest", "normalize", "enrich", "egest", "retrier", "observe")
RATE: Final = 50
"""Events a second."""


def coloured(values: Mapping[str, Any], colour: str) -> dict[str, Any]:
    """The values of a release that is one of two colours; blue's Kafka is also that of the control plane."""
    services = {name: {"enabled": False} for name in ("rollout", "manage")}
    return {
        **values,
        "colour": {"name": colour, "record": "hifi-control"},
        "control": {"enabled": True, "name": f"hifi-{colour}", "kafka": KAFKA["blue"]},
        "settings": {**values["settings"], "HIFI_OBSERVE_STABLE_S": 5},
        "services": {**values["services"], **services},
    }


@dataclass(frozen=True, slots=True)
class ColouredReleases:
    """Both releases behind a Gateway."""

    blue: Release
    green: Release

    def run_in_colours(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the pod of the service `colours`, as docs/colours.md says."""
        return self.blue.node.kubectl(
            "-n", NAMESPACE, "exec", f"deploy/{RELEASE}-hifi-colours", "--", *command
        )

    def change(self, *arguments: str) -> None:
        """Run `hifi colour`; again while observe calls a colour unstable."""

        def has_succeeded() -> bool:
            completed = self.run_in_colours("/opt/hifi/bin/hifi", "colour", *arguments)
            assert completed.returncode == 0 or "unstable" in completed.stdout, completed.stdout
            return completed.returncode == 0

        until(has_succeeded, f"`hifi colour {' '.join(arguments)}` succeeds")

    def weights(self) -> list[int]:
        """The weights of blue and green in the route."""
        [rule] = self.blue.get("httproute", f"{RELEASE}-hifi-ingest")["spec"]["rules"]
        weights = {backend["name"]: backend["weight"] for backend in rule["backendRefs"]}
        return [weights[f"{release}-hifi-ingest"] for release in RELEASES.values()]

    def wait_weights(self, blue: int, green: int) -> None:
        """Wait until the route has the weights: it follows the record of a change."""
        until(lambda: self.weights() == [blue, green], f"the weights are {blue} and {green}")


@pytest.fixture(scope="module")
def colours(cluster: Node, tag: str) -> Iterator[ColouredReleases]:
    """Both releases with the pipe of the demo."""
    install_crds(cluster)
    create_namespace(cluster)
    values = create_pipes(cluster, f"http://{DESTINATION}")
    values_of_colours = {
        "blue": coloured(values, "blue")
        | {
            "route": {"enabled": True, "parents": [{"name": "gateway"}]},
            "colours": {
                "enabled": True,
                "url": GATEWAY,
                **{
                    colour: {"release": release, "name": f"{release}-hifi", "kafka": KAFKA[colour]}
                    for colour, release in RELEASES.items()
                },
            },
        },
        "green": coloured(values, "green")
        | {"destination": {"enabled": False}, "egress": {"allow": [f"http={DESTINATION}"]}},
    }
    files = {colour: cluster.folder / f"{colour}.json" for colour in RELEASES}
    for colour, file in files.items():
        file.write_text(json.dumps(values_of_colours[colour]))
    helm = find_helm()
    releases = ColouredReleases(
        *(Release(cluster, helm, tag, files[colour], release) for colour, release in RELEASES.items())
    )
    with gateway(cluster):
        blue = releases.blue
        # Without waiting: it is ready once green's Kafka is there.
        installed = blue.run_helm("install", blue.name, str(CHART), *blue.values())
        assert installed.returncode == 0, installed.stdout
        for release in (releases.green, blue):
            release.deploy()
        yield releases


@contextlib.contextmanager
def gateway(node: Node) -> Iterator[None]:
    """The Gateway, with all rights."""
    node.ask("create", "serviceaccount", "gateway")
    all_rights = ("--clusterrole=cluster-admin", "--serviceaccount=default:gateway")
    node.ask("create", "clusterrolebinding", "gateway", *all_rights)
    (node.folder / "gateway-token").write_text(node.ask("create", "token", "gateway", "--duration=4h"))
    module = ("-m", "tests.support.kubernetes.gateway_process")
    with node.running(
        node.folder / "logs/gateway.log", sys.executable, *module, f"{NODE}/gateway-token", NAMESPACE
    ):
        yield


def test_a_shift_and_back_move_all_requests_and_lose_nothing(
    colours: ColouredReleases, tmp_path: Path
) -> None:
    sent_flights = Flights.write(tmp_path / "events.ndjson", 15_000)
    assert colours.weights() == [10_000, 0]
    sending = colours.blue.send(sent_flights, RATE, GATEWAY)
    colours.blue.wait_accepted(500)
    colours.change("shift", "green")
    colours.wait_weights(0, 10_000)
    colours.green.wait_accepted(500)
    accepted_before = colours.blue.accepted()
    colours.green.wait_accepted(500)
    assert colours.blue.accepted() == accepted_before, "blue gets no request"
    colours.change("split")
    colours.wait_weights(5_000, 5_000)
    colours.blue.wait_accepted(500)
    colours.change("shift", "blue")
    colours.wait_weights(10_000, 0)
    result = sending.result()
    print(result)
    assert result["accepted"] == 15_000
    colours.blue.wait_delivered(sent_flights, tmp_path)


def test_an_upgrade_keeps_the_shares_and_loses_nothing(colours: ColouredReleases, tmp_path: Path) -> None:
    sent_flights = Flights.write(tmp_path / "events.ndjson", 3_000, first=20_000)
    sending = colours.blue.send(sent_flights, RATE, GATEWAY)
    colours.change("shift", "green")
    pod_before = colours.blue.pod("ingest")
    colours.blue.deploy("--set-string", "services.ingest.podAnnotations.upgrade=2")
    assert colours.blue.pod("ingest") != pod_before
    assert colours.weights() == [0, 10_000]
    colours.change("shift", "blue")
    assert sending.result()["accepted"] == 3_000
    colours.blue.wait_delivered(sent_flights, tmp_path)


def test_green_gets_all_requests_once_blue_has_no_instance(colours: ColouredReleases, tmp_path: Path) -> None:
    sent_flights = Flights.write(tmp_path / "events.ndjson", 6_000, first=30_000)
    sending = colours.blue.send(sent_flights, RATE, GATEWAY)
    colours.blue.wait_accepted(500)
    parts = ("scale", "deployment", *(f"{RELEASE}-hifi-{service}" for service in SERVICES))
    colours.blue.ask(*parts, "--replicas=0")
    colours.wait_weights(0, 10_000)
    colours.green.wait_accepted(500)
    refused = colours.run_in_colours("/opt/hifi/bin/hifi", "colour", "shift", "blue")
    assert (refused.returncode, "blue is not ready" in refused.stdout) == (1, True), refused.stdout
    colours.blue.ask(*parts, "--replicas=1")
    for service in SERVICES:
        colours.blue.wait_ready(service)
    colours.change("shift", "blue")
    result = sending.result()
    print(result)
    assert result["accepted"] == 6_000
    colours.blue.wait_delivered(sent_flights, tmp_path)
