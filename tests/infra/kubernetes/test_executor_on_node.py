"""The executor on a real node with the chart's rights: pods begin and end, and nothing acts on what is not known."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from tests.support.helm.chart import ROOT, find_helm, render
from tests.support.kubernetes.node import Node, node, until
from tests.support.kubernetes.places import ADDRESS

from hifi_infra.kubernetes.fenced_changes import FENCE_ANNOTATION

pytestmark = pytest.mark.more

VALUES: Final = ROOT / "tests/infra/helm/values/executor.yaml"
ACCOUNT: Final = "/run/secrets/kubernetes.io/serviceaccount"
SECRET: Final = "0" * 32
METRICS_SERVER: Final = ("-n", "kube-system", "scale", "deployment", "metrics-server")
CLIENT: Final = """
import asyncio, json, sys
import aiohttp
from hifi.runtime.errors import HifiError
from hifi_infra.mesh.executor_client import MeshExecutor

async def main(secret, change):
    async with aiohttp.ClientSession() as session:
        executor = MeshExecutor(session, "http://127.0.0.1:9400", secret)
        try:
            for method, *arguments in json.loads(change):
                await getattr(executor, method)(*arguments)
            instances = await executor.instances()
        except HifiError as error:
            print(json.dumps(str(error)))
        else:
            print(json.dumps([part.json() for parts in instances.values() for part in parts]))

asyncio.run(main(*sys.argv[1:]))
"""


def deployment(service: str, replicas: int) -> dict[str, Any]:
    """A Deployment as the chart names it, whose pods only wait."""
    labels = {
        "app.kubernetes.io/name": "hifi",
        "app.kubernetes.io/instance": "try",
        "app.kubernetes.io/component": service,
    }
    container = {"name": service, "image": "localhost/pause:1", "imagePullPolicy": "Never"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"try-hifi-{service}", "labels": labels},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
        },
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node with two instances of egest and one of enrich, and the chart's account of the executor."""
    chart = render(find_helm(), "--values", str(VALUES))
    account = [chart.of(kind)["executor"] for kind in ("ServiceAccount", "Role", "RoleBinding")]
    with node(tmp_path_factory.mktemp("node")) as running:
        running.ask("create", "namespace", "shop")
        for resource in (*account, deployment("egest", 2), deployment("enrich", 1)):
            running.ask("-n", "shop", "apply", "-f", "-", input_text=json.dumps(resource))
        token = running.ask("-n", "shop", "create", "token", "try-hifi-executor", "--duration=2h")
        files = {
            f"{ACCOUNT}/token": token,
            f"{ACCOUNT}/namespace": "shop",
            f"{ACCOUNT}/ca.crt": (running.folder / "keys/authority.crt").read_text(),
            "/run/executor-secret": SECRET,
        }
        for file, text in files.items():
            running.run("mkdir", "-p", str(Path(file).parent))
            running.run("tee", file, input_text=text)
        tagged = running.run("ctr", "images", "tag", "localhost/pause:1", "localhost/pause:2")
        assert tagged.returncode == 0, tagged.stdout
        yield running


@contextlib.contextmanager
def executor(cluster: Node, log: Path) -> Iterator[None]:
    """The executor as a process of the node, with the account's token."""
    variables = (
        f"KUBERNETES_SERVICE_HOST={ADDRESS}",
        "KUBERNETES_SERVICE_PORT=6443",
        "HIFI_PORT=9000",
        "HIFI_EXECUTOR_RELEASE=try",
        "HIFI_EXECUTOR_INSTALLED=1",
        "HIFI_EXECUTOR_SECRET_FILE=/run/executor-secret",
    )
    with cluster.running(log, *variables, sys.executable, "-m", "hifi_infra.kubernetes"):
        until(lambda: "does not answer" not in str(ask(cluster)), f"the executor answers: {log}")
        yield


def ask(cluster: Node, *change: str | int) -> Any:
    """The instances after a change, or why it was refused: the client's method and its arguments."""
    completed = cluster.run(sys.executable, "-c", CLIENT, SECRET, json.dumps([change] if change else []))
    return json.loads(completed.stdout.splitlines()[-1])


def scale(cluster: Node, service: str, count: int, token: int) -> Any:
    """The instances with another number of them, or why that was refused."""
    return ask(cluster, "scale", service, count, "a test", token)


def pods(cluster: Node, service: str) -> int:
    """Number of pods of a service, ending ones included."""
    selector = f"app.kubernetes.io/component={service}"
    return len(json.loads(cluster.ask("-n", "shop", "get", "pods", "-l", selector, "-o", "json"))["items"])


def ready(cluster: Node, count: int) -> list[dict[str, Any]] | None:
    """The instances of egest, if all are ready and what they use is known."""
    instances = ask(cluster)
    if isinstance(instances, str):
        return None
    egest = [instance for instance in instances if instance["service"] == "egest"]
    is_known = all(instance["ready"] and instance["measured"] for instance in egest)
    return egest if len(egest) == count and is_known else None


def until_ready(cluster: Node, count: int) -> list[dict[str, Any]]:
    """The instances of egest once there are as many, all ready and with known use."""
    until(lambda: ready(cluster, count), f"{count} instances run")
    return ready(cluster, count) or []


def test_actions_change_pods_and_fence_earlier_ones(cluster: Node, tmp_path: Path) -> None:
    with executor(cluster, tmp_path / "executor.log"):
        until(lambda: ready(cluster, 2), "both instances and their use are known")
        for instance in ready(cluster, 2) or ():
            assert instance["rss_bytes"] > 0
            assert instance["host"].startswith("10.244.0.")
            assert instance["release"] == "installed"
        scale(cluster, "egest", 3, 5)
        until(lambda: ready(cluster, 3), "a third instance is ready")
        assert "The action 4 is over" in scale(cluster, "egest", 2, 4)
        assert pods(cluster, "egest") == 3
        until(lambda: not isinstance(scale(cluster, "egest", 1, 6), str), "the change ends")
        assert pods(cluster, "egest") == 1, "a change ends once surplus instances have"
    with executor(cluster, tmp_path / "executor.log"):
        assert "The action 5 is over" in scale(cluster, "egest", 2, 5), "also after a restart"
        assert "cannot patch" in scale(cluster, "enrich", 2, 7), "nothing else is in its rights"
        assert pods(cluster, "enrich") == 1
        annotation = f"jsonpath={{.metadata.annotations.{FENCE_ANNOTATION.replace('.', chr(92) + '.')}}}"
        assert cluster.ask("-n", "shop", "get", "deployment", "try-hifi-egest", "-o", annotation) == "6"


def test_instances_are_unknown_while_metrics_are_missing(cluster: Node, tmp_path: Path) -> None:
    with executor(cluster, tmp_path / "executor.log"):
        until(lambda: ready(cluster, 1), "the instance and its use are known")
        cluster.ask(*METRICS_SERVER, "--replicas=0")
        until(lambda: any(not instance["measured"] for instance in ask(cluster)), "the metric is missing")
        cluster.ask(*METRICS_SERVER, "--replicas=1")
        until(lambda: ready(cluster, 1), "the metric is back")


def test_a_canary_goes_back_and_another_one_goes_everywhere(cluster: Node, tmp_path: Path) -> None:
    with executor(cluster, tmp_path / "executor.log"):
        scale(cluster, "egest", 2, 20)
        until(lambda: ready(cluster, 2), "two instances run")
        ask(cluster, "set_release", "egest-1", "2", "a canary", 21)
        until(lambda: ready(cluster, 3), "the canary is one more instance")
        releases = {instance["name"]: instance["release"] for instance in ready(cluster, 3) or ()}
        assert releases.pop("egest-1") == "2"
        assert set(releases.values()) == {"installed"}
        ask(cluster, "remove", "egest-1", "it was worse", 22)
        instances = until_ready(cluster, 2)
        assert {instance["name"]: instance["release"] for instance in instances} == releases, "they stayed"
        ask(cluster, "set_release", "egest-1", "2", "a canary", 23)
        until(lambda: ready(cluster, 3), "the canary is one more instance")
        for token in (24, 25):
            old_names = [part["name"] for part in until_ready(cluster, 3) if part["release"] == "installed"]
            ask(cluster, "set_release", old_names[0], "2", "a batch", token)
        ask(cluster, "remove", "egest-1", "in force", 26)
        ask(cluster, "set_default_release", "egest", "2", 27)
        instances = until_ready(cluster, 2)
        assert {instance["release"] for instance in instances} == {"2"}
        assert "The action 21 is over" in ask(cluster, "set_release", "egest-1", "installed", "late", 21)
