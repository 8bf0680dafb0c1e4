"""A real API server takes what the Helm chart renders, and Helm installs, upgrades and removes it there."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.helm.chart import CHART, GATEWAY, KEDA, find_helm, render
from tests.support.helm.crds import install_crds
from tests.support.kubernetes.api_server import ApiServer, api_server

from hifi_infra.kubernetes import colour_route, service_deployment
from hifi_infra.kubernetes.fenced_changes import FENCE_ANNOTATION

pytestmark = pytest.mark.more

VALUES: Final = sorted(Path(__file__).with_name("values").glob("*.yaml"))
TRY: Final = str(CHART / "values/try.yaml")
COLOURS: Final = str(Path(__file__).with_name("values") / "colours.yaml")


@pytest.fixture(scope="module")
def helm() -> list[str]:
    """The command `helm`."""
    return find_helm()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """An API server with KEDA's and Gateway API's resources, and a namespace with the restricted profile."""
    with api_server(tmp_path_factory.mktemp("kubernetes")) as server:
        install_crds(server)
        server.kubectl("create", "namespace", "shop")
        profile = "pod-security.kubernetes.io"
        server.kubectl(
            "label", "namespace", "shop", f"{profile}/enforce=restricted", f"{profile}/warn=restricted"
        )
        yield server


def run_helm(helm: list[str], cluster: ApiServer, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Helm in the namespace of the test."""
    environment = {**os.environ, "KUBECONFIG": str(cluster.configuration)}
    command = [*helm, "--namespace", "shop", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("values", VALUES, ids=lambda file: file.stem)
def test_each_resource_is_taken_without_a_warning(helm: list[str], cluster: ApiServer, values: Path) -> None:
    resources = render(helm, "--values", str(values), apis=(KEDA, GATEWAY)).resources
    documents = "".join(f"---\n{_text(resource)}" for resource in resources)
    completed = cluster.kubectl(
        "apply", "--dry-run=server", "--validate=strict", "-f", "-", input_text=documents
    )
    assert completed.returncode == 0, completed.stdout
    assert {line.rpartition(" created ")[2] for line in completed.stdout.splitlines()} == {"(server dry run)"}


@pytest.mark.parametrize("values", VALUES, ids=lambda file: file.stem)
def test_each_pod_is_admitted_under_the_restricted_profile(
    helm: list[str], cluster: ApiServer, values: Path
) -> None:
    for name, pod in render(helm, "--values", str(values)).pods():
        spec = {key: value for key, value in pod["spec"].items() if key != "priorityClassName"}
        if name == "kafka":
            spec["volumes"] = [
                *spec["volumes"],
                {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            ]
            spec["volumes"] = list({volume["name"]: volume for volume in spec["volumes"]}.values())
        bare_pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "shop"},
            "spec": spec,
        }
        completed = cluster.kubectl("create", "--dry-run=server", "-f", "-", input_text=_text(bare_pod))
        assert completed.returncode == 0, completed.stdout
        privileged = {**bare_pod, "spec": {**spec, "hostNetwork": True}}
        refused_run = cluster.kubectl("create", "--dry-run=server", "-f", "-", input_text=_text(privileged))
        assert "violates PodSecurity" in refused_run.stdout


def test_a_release_is_installed_upgraded_and_removed(helm: list[str], cluster: ApiServer) -> None:
    install_run = run_helm(helm, cluster, "install", "try", str(CHART), "--values", TRY)
    assert install_run.returncode == 0, install_run.stderr
    assert "This chart is experimental" in install_run.stdout
    [job] = _names(cluster, "jobs")
    options = ("--set", "services.egest.replicas=2", "--set-string", "pipes.revision=2")
    upgraded = run_helm(helm, cluster, "upgrade", "try", str(CHART), "--values", TRY, *options)
    assert upgraded.returncode == 0, upgraded.stderr
    [next_job] = _names(cluster, "jobs")
    assert next_job != job
    replicas = cluster.kubectl(
        "-n", "shop", "get", "deployment", "try-hifi-egest", "-o", "jsonpath={.spec.replicas}"
    )
    assert replicas.stdout == "2"
    rolled_back = run_helm(helm, cluster, "rollback", "try", "1")
    assert rolled_back.returncode == 0, rolled_back.stderr
    assert _names(cluster, "jobs") == [job]
    removed = run_helm(helm, cluster, "uninstall", "try")
    assert removed.returncode == 0, removed.stderr
    kinds = (
        "deployments,statefulsets,services,configmaps,networkpolicies,poddisruptionbudgets,serviceaccounts"
    )
    assert [name for name in _names(cluster, kinds) if "hifi" in name] == []


def test_an_upgrade_ends_a_deployment_that_the_executor_has_begun(
    helm: list[str], cluster: ApiServer
) -> None:
    egest = ("-n", "shop", "get", "deployment", "try-hifi-egest", "-o", "json")
    assert run_helm(helm, cluster, "install", "try", str(CHART), "--values", TRY).returncode == 0
    try:
        installed = json.loads(cluster.kubectl(*egest).stdout)
        deployment = service_deployment.read(installed, "1")
        change = deployment.canary_change("egest-1", "1.4", "1")
        patch_run = cluster.kubectl(
            "-n", "shop", "patch", "deployment", "try-hifi-egest", "--type=merge", "-p", json.dumps(change)
        )
        assert patch_run.returncode == 0, patch_run.stdout
        judged = service_deployment.read(json.loads(cluster.kubectl(*egest).stdout), "1")
        assert (judged.canary, judged.release) == ("egest-1", "1.4")
        options = ("--set-string", "services.egest.podAnnotations.changed=yes")
        upgraded = run_helm(helm, cluster, "upgrade", "try", str(CHART), "--values", TRY, *options)
        assert upgraded.returncode == 0, upgraded.stderr
        spec = json.loads(cluster.kubectl(*egest).stdout)["spec"]
        assert "minReadySeconds" not in spec
        for key in ("progressDeadlineSeconds", "strategy"):
            assert spec[key] == installed["spec"][key]
        [container] = spec["template"]["spec"]["containers"]
        assert container["image"] == installed["spec"]["template"]["spec"]["containers"][0]["image"]
    finally:
        run_helm(helm, cluster, "uninstall", "try")


def test_a_command_runs_in_a_copy_of_the_pod_of_setup(helm: list[str], cluster: ApiServer) -> None:
    assert run_helm(helm, cluster, "install", "try", str(CHART), "--values", TRY).returncode == 0
    try:
        [job] = json.loads(cluster.kubectl("-n", "shop", "get", "jobs", "-o", "json").stdout)["items"]
        template = job["spec"]["template"]
        setup = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "setup-1", "labels": template["metadata"]["labels"]},
            "spec": template["spec"],
        }
        created = cluster.kubectl("-n", "shop", "create", "-f", "-", input_text=_text(setup))
        assert created.returncode == 0, created.stdout
        command = ("/opt/hifi/bin/hifi", "deploy", "status")
        options = ("--copy-to=hifi", "--keep-labels", "--profile=restricted", "-c", "setup")
        copied = cluster.kubectl("-n", "shop", "debug", *options, "pod/setup-1", "--", *command)
        assert copied.returncode == 0, copied.stdout
        copy = json.loads(cluster.kubectl("-n", "shop", "get", "pod", "hifi", "-o", "json").stdout)
        [container] = copy["spec"]["containers"]
        assert container["command"] == list(command)
        assert "args" not in container
        [original] = template["spec"]["containers"]
        assert container["env"] == original["env"]
        assert copy["metadata"]["labels"] == template["metadata"]["labels"]
    finally:
        cluster.kubectl("-n", "shop", "delete", "pod", "setup-1", "hifi", "--grace-period=0", "--force")
        run_helm(helm, cluster, "uninstall", "try")


def test_a_second_release_of_a_stream_on_one_kafka_is_refused(helm: list[str], cluster: ApiServer) -> None:
    kafka = ("--set", "kafka.bootstrapServers=kafka:9092")
    assert run_helm(helm, cluster, "install", "first", str(CHART), *kafka).returncode == 0
    try:
        assert run_helm(helm, cluster, "upgrade", "first", str(CHART), *kafka).returncode == 0
        refused_run = run_helm(helm, cluster, "install", "second", str(CHART), *kafka)
        assert refused_run.returncode != 0
        assert 'the release first has the stream "hifi" on this Kafka already' in refused_run.stderr
        other_stream = run_helm(
            helm, cluster, "install", "second", str(CHART), *kafka, "--set", "stream.name=other"
        )
        assert other_stream.returncode == 0, other_stream.stderr
    finally:
        run_helm(helm, cluster, "uninstall", "first")
        run_helm(helm, cluster, "uninstall", "second")


def test_what_the_cluster_lacks_is_left_out_and_named(helm: list[str], cluster: ApiServer) -> None:
    values_file = Path(__file__).with_name("values") / "everything.yaml"
    install_run = run_helm(helm, cluster, "install", "all", str(CHART), "--values", str(values_file))
    try:
        assert install_run.returncode == 0, install_run.stderr
        assert "This cluster has no Prometheus Operator" in install_run.stdout
        assert "has no KEDA" not in install_run.stdout
        assert "has no Gateway API" not in install_run.stdout
        assert _names(cluster, "scaledobjects") == ["all-hifi-egest", "all-hifi-normalize"]
        assert _names(cluster, "httproutes") == ["all-hifi-ingest"]
    finally:
        run_helm(helm, cluster, "uninstall", "all")


@pytest.fixture
def colours(helm: list[str], cluster: ApiServer) -> Iterator[ApiServer]:
    """The cluster with a release that has the service colours."""
    installed = run_helm(helm, cluster, "install", "try", str(CHART), "--values", COLOURS)
    try:
        assert installed.returncode == 0, installed.stderr
        yield cluster
    finally:
        run_helm(helm, cluster, "uninstall", "try")


def _route(cluster: ApiServer) -> dict[str, Any]:
    completed = cluster.kubectl("-n", "shop", "get", "httproute", "try-hifi-ingest", "-o", "json")
    assert completed.returncode == 0, completed.stdout
    return dict(json.loads(completed.stdout))


def test_an_upgrade_keeps_the_shares_of_the_colours(helm: list[str], colours: ApiServer) -> None:
    backends = {"blue": "try-hifi-ingest", "green": "green-hifi-ingest"}
    route = colour_route.read(_route(colours), backends)
    assert route.shares == {"blue": 10_000, "green": 0}
    shares = {"blue": 0, "green": 10_000}
    change = {**(route.change_to(shares) or {}), "metadata": {"annotations": {FENCE_ANNOTATION: "7"}}}
    patched = colours.kubectl(
        "-n", "shop", "patch", "httproute", route.name, "--type=merge", "-p", json.dumps(change)
    )
    assert patched.returncode == 0, patched.stdout
    options = ("--values", COLOURS, "--set", "route.hostnames[0]=other.example")
    upgraded = run_helm(helm, colours, "upgrade", "try", str(CHART), *options)
    assert upgraded.returncode == 0, upgraded.stderr
    upgraded_route = _route(colours)
    assert upgraded_route["spec"]["hostnames"] == ["other.example"]
    route = colour_route.read(upgraded_route, backends)
    assert (route.shares, route.token) == (shares, 7)


@pytest.mark.parametrize(
    ("verb", "resource", "may"),
    [
        ("get", "httproutes.gateway.networking.k8s.io/try-hifi-ingest", True),
        ("patch", "httproutes.gateway.networking.k8s.io/try-hifi-ingest", True),
        ("list", "deployments.apps", True),
        ("patch", "httproutes.gateway.networking.k8s.io/other", False),
        ("list", "httproutes.gateway.networking.k8s.io", False),
        ("delete", "httproutes.gateway.networking.k8s.io/try-hifi-ingest", False),
        ("patch", "deployments.apps/try-hifi-ingest", False),
        ("list", "pods", False),
        ("get", "secrets", False),
    ],
)
def test_colours_may_do_what_it_needs_and_nothing_else(
    colours: ApiServer, verb: str, resource: str, *, may: bool
) -> None:
    account = "system:serviceaccount:shop:try-hifi-colours"
    completed = colours.kubectl("-n", "shop", "auth", "can-i", verb, resource, f"--as={account}")
    assert completed.stdout.splitlines()[-1] == ("yes" if may else "no")


def _names(cluster: ApiServer, kinds: str) -> list[str]:
    completed = cluster.kubectl("-n", "shop", "get", kinds, "-o", "jsonpath={.items[*].metadata.name}")
    assert completed.returncode == 0, completed.stdout
    return sorted(completed.stdout.split())


def _text(resource: Any) -> str:
    """A resource as JSON, which is YAML."""
    return json.dumps(resource) + "\n"
