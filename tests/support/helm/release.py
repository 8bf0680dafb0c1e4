"""A release of the Helm chart on a node whose pods run."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.helm.chart import CHART, ROOT
from tests.support.helm.flights import WRITE_KEY, Flights, Sending
from tests.support.helm.namespace import NAMESPACE, TRY
from tests.support.kubernetes.node import Node, until

RELEASE: Final = "try"
WITHIN_S: Final = 900
IMAGES: Final = (
    "kafka",
    "tools",
    "destination",
    "ingest",
    "normalize",
    "enrich",
    "egest",
    "retrier",
    "observe",
    "scale",
    "deploy",
)
"""Of a release of values/try.yaml, with the control plane."""
_ACCEPTED: Final = re.compile(r"^hifi_ingest_accepted_events_total\b.* (\S+)$", re.MULTILINE)
_SENDER: Final = ROOT / "tests/support/programs/patient_sender.py"


def set_values(*values: str) -> tuple[str, ...]:
    """Arguments of Helm for values."""
    return tuple(word for value in values for word in ("--set", value))


@dataclass(frozen=True, slots=True)
class Release:
    """A release in a namespace with the restricted profile, `try` of values/try.yaml unless something else is said.

    Attributes:
        node: where its pods run.
        helm: the command.
        tag: of the images.
        base: file of values.
        name: of the release.
    """

    node: Node
    helm: Sequence[str]
    tag: str
    base: Path = TRY
    name: str = RELEASE

    def run_helm(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run Helm in the namespace; its output has errors, too."""
        return self.node.run(*self.helm, "--namespace", NAMESPACE, *arguments)

    def deploy(self, *arguments: str) -> None:
        """Install or upgrade it and wait until all is ready."""
        completed = self.run_helm(
            "upgrade", "--install", self.name, str(CHART), *self.values(*arguments), *self.waiting
        )
        assert completed.returncode == 0, f"{completed.stdout}\n{self.state()}"

    def values(self, *arguments: str) -> Sequence[str]:
        """Arguments for the values."""
        return ("--values", str(self.base), "--set-string", f"image.tag={self.tag}", *arguments)

    @property
    def waiting(self) -> Sequence[str]:
        """Arguments that wait until all is ready."""
        return ("--wait", "--wait-for-jobs", f"--timeout={WITHIN_S}s")

    def ask(self, *arguments: str, input_text: str | None = None) -> str:
        """The output of kubectl in the namespace; it must succeed."""
        return self.node.ask("-n", NAMESPACE, *arguments, input_text=input_text)

    def get(self, *arguments: str) -> Any:
        """Resources as JSON."""
        return json.loads(self.ask("get", *arguments, "-o", "json"))

    def pods(self, component: str) -> list[Any]:
        """The pods of a component that are not ending."""
        labels = f"app.kubernetes.io/instance={self.name},app.kubernetes.io/component={component}"
        items = self.get("pods", "-l", labels)["items"]
        return [pod for pod in items if "deletionTimestamp" not in pod["metadata"]]

    def pod(self, component: str) -> str:
        """Name of the first pod of a component."""
        return str(self.pods(component)[0]["metadata"]["name"])

    def ready(self, component: str) -> int:
        """Number of ready pods of a deployment."""
        return int(self.get("deployment", f"{self.name}-hifi-{component}")["status"].get("readyReplicas", 0))

    def stay(self, component: str, count: int, seconds: float) -> None:
        """Watch that the number of instances does not change for some time."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            assert len(self.pods(component)) == count
            time.sleep(1)

    def has_metric(self, component: str, prefix: str = "") -> bool:
        """Whether the autoscaler of a deployment, whose name may have a prefix, knows its metric."""
        return self.has_condition(f"hpa/{prefix}{self.name}-hifi-{component}", "ScalingActive")

    def has_condition(self, resource: str, name: str) -> bool:
        """Whether a condition of a resource, by kind and name, is true."""
        conditions = self.get(resource).get("status", {}).get("conditions", [])
        return any(condition["type"] == name and condition["status"] == "True" for condition in conditions)

    def wait_ready(self, component: str) -> None:
        """Wait until all pods of a deployment are ready."""
        self.ask("rollout", "status", "deployment", f"{self.name}-hifi-{component}", f"--timeout={WITHIN_S}s")

    def evict(self, pod: str) -> None:
        """Evict a pod, as a drain does."""
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod, "namespace": NAMESPACE},
        }
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/eviction"
        self.ask("create", "--raw", path, "-f", "-", input_text=json.dumps(body))

    def kill(self, pod: str) -> None:
        """End a pod without a warning, SIGKILL."""
        self.ask("delete", "pod", pod, "--grace-period=0", "--force")

    def tag_image(self, image: str, tag: str) -> None:
        """Give an image of the node another tag, too."""
        repository = f"docker.io/library/hifi-{image}"
        command = ("ctr", "images", "tag", f"{repository}:{self.tag}", f"{repository}:{tag}")
        completed = self.node.run(*command)
        assert completed.returncode == 0, completed.stdout

    def run_hifi(self, *arguments: str) -> str:
        """The output of the command `hifi`, which must succeed, in a copy of setup's pod as docs/kubernetes.md says."""
        options = ("--copy-to=hifi", "--keep-labels", "--profile=restricted", "-c", "setup")
        command = ("debug", *options, f"pod/{self.pod('setup')}", "--", "/opt/hifi/bin/hifi", *arguments)
        self.ask(*command)
        try:
            self.ask("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/hifi", f"--timeout={WITHIN_S}s")
        finally:
            output = self.ask("logs", "hifi")
            self.ask("delete", "pod", "hifi")
        return output

    def send(self, flights: Flights, rate: float, url: str = "") -> Sending:
        """Start to send events from the node, outside of pods, to ingest or what is in front of it."""
        address = self.get("service", f"{self.name}-hifi-ingest")["spec"]["clusterIP"]
        command = (
            sys.executable,
            str(_SENDER),
            f"{url or f'http://{address}:8080'}/v1/pipes/flights/events",
            f"{rate:g}",
        )
        return Sending(
            subprocess.Popen(
                self.node.command(*command, str(flights.events)),
                env={**os.environ, "KEY": WRITE_KEY},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )

    def counts(self) -> Mapping[str, int]:
        """Path of the destination to the number of requests so far; flushes its log."""
        service = f"/api/v1/namespaces/{NAMESPACE}/services/http:{self.name}-hifi-destination:9100"
        return dict(json.loads(self.node.ask("get", "--raw", f"{service}/proxy/counts"))["by_path"])

    def accepted(self) -> int:
        """Number of events that the instances of ingest have accepted since their start."""
        pages = [
            self.ask("get", "--raw", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}:9000/proxy/metrics")
            for name in (pod["metadata"]["name"] for pod in self.pods("ingest"))
        ]
        return sum(int(float(count)) for page in pages for count in _ACCEPTED.findall(page))

    def wait_accepted(self, count: int) -> None:
        """Wait until they have accepted `count` more events."""
        before = self.accepted()
        until(lambda: self.accepted() >= before + count, f"ingest of {self.name} accepts events", WITHIN_S)

    def copy_request_log(self, target: Path) -> None:
        """Append to a file what the destination has logged since the last call, as far as the connection holds."""
        self.counts()
        with target.open("ab") as log:
            tail = ("tail", "--bytes", f"+{log.tell() + 1}", "/var/lib/destination/books")
            command = ("-n", NAMESPACE, "exec", self.pod("destination"), "--", *tail)
            subprocess.run(self.node.command(*self.node.kubectl_words, *command), stdout=log, check=False)

    def wait_delivered(self, sent_flights: Flights, tmp_path: Path) -> None:
        """Wait until all deliveries of some events have arrived, with the right values."""
        log = tmp_path / "requests.log"

        def all_arrived() -> bool:
            self.copy_request_log(log)
            return not sent_flights.compare(log).lost

        until(all_arrived, "every delivery has arrived", WITHIN_S)
        arrivals = sent_flights.compare(log)
        deliveries = sum(sent_flights.by_path.values())
        print(f"{len(sent_flights.expected)} events, {deliveries} deliveries, {arrivals.repeated} repeated")
        assert arrivals.wrong == []

    def logs(self, component: str) -> str:
        """The log of the first pod of a component."""
        return self.ask("logs", self.pod(component))

    def state(self) -> str:
        """Pods, events and logs, for the message of a failed test."""
        sections = [
            self.node.kubectl("-n", NAMESPACE, *words).stdout
            for words in (
                ("get", "pods", "-o", "wide"),
                ("get", "events", "--field-selector=type=Warning"),
                ("logs", "-l", "app.kubernetes.io/name=hifi", "--all-containers", "--prefix", "--tail=3"),
            )
        ]
        return "\n".join(sections)
