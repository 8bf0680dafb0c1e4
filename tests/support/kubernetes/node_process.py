"""`python -m tests.support.kubernetes.node_process FOLDER`: the first process of a node, in namespaces of its own.

It starts all parts of Kubernetes with their state in the folder, which they see as NODE, and writes the file `ready`
there once pods can run. It reaps what pods leave behind. When it ends, the kernel ends everything in its namespaces.
"""

import json
import os
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.support.kubernetes.places import ADDRESS, API, CONTAINERD, NODE

_WITHIN_S: Final = 600
_KEYS: Final = f"{NODE}/keys"
_LOCAL: Final = "http://127.0.0.1"
_SYSCTLS: Final = {"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1"}
"""Settings of the whole machine to what the kubelet wants: it finds them so, and changes nothing."""
_CONTROL: Final = {
    "etcd": [
        f"--data-dir={NODE}/etcd",
        f"--listen-client-urls={_LOCAL}:2379",
        f"--advertise-client-urls={_LOCAL}:2379",
        f"--listen-peer-urls={_LOCAL}:2380",
        f"--initial-advertise-peer-urls={_LOCAL}:2380",
        f"--initial-cluster=default={_LOCAL}:2380",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ],
    "kube-apiserver": [
        f"--etcd-servers={_LOCAL}:2379",
        f"--bind-address={ADDRESS}",
        f"--advertise-address={ADDRESS}",
        f"--tls-cert-file={_KEYS}/apiserver.crt",
        f"--tls-private-key-file={_KEYS}/apiserver.key",
        f"--client-ca-file={_KEYS}/authority.crt",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={_KEYS}/accounts.key",
        f"--service-account-signing-key-file={_KEYS}/accounts.key",
        "--service-cluster-ip-range=10.96.0.0/16",
        f"--kubelet-client-certificate={_KEYS}/apiserver-to-kubelet.crt",
        f"--kubelet-client-key={_KEYS}/apiserver-to-kubelet.key",
        f"--kubelet-certificate-authority={_KEYS}/authority.crt",
        "--kubelet-preferred-address-types=InternalIP",
        # For the API of metrics-server.
        f"--requestheader-client-ca-file={_KEYS}/front-authority.crt",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={_KEYS}/front-client.crt",
        f"--proxy-client-key-file={_KEYS}/front-client.key",
    ],
}
_REST: Final = {
    "kube-controller-manager": [
        *(
            f"--{use}kubeconfig={_KEYS}/kube-controller-manager.conf"
            for use in ("", "authentication-", "authorization-")
        ),
        f"--service-account-private-key-file={_KEYS}/accounts.key",
        f"--root-ca-file={_KEYS}/authority.crt",
        "--use-service-account-credentials",
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
        # So that a test need not wait for minutes until the CPU of a new pod counts.
        "--horizontal-pod-autoscaler-sync-period=5s",
        "--horizontal-pod-autoscaler-cpu-initialization-period=30s",
        "--horizontal-pod-autoscaler-initial-readiness-delay=10s",
    ],
    "kube-scheduler": [
        *(
            f"--{use}kubeconfig={_KEYS}/kube-scheduler.conf"
            for use in ("", "authentication-", "authorization-")
        ),
        "--bind-address=127.0.0.1",
        "--leader-elect=false",
    ],
    "kubelet": [
        f"--config={NODE}/configuration/kubelet.yaml",
        f"--kubeconfig={_KEYS}/kubelet.conf",
        "--hostname-override=node1",
        f"--node-ip={ADDRESS}",
        f"--root-dir={NODE}/kubelet",
    ],
    "kube-proxy": [f"--config={NODE}/configuration/kube-proxy.yaml"],
}


def run(*command: str) -> None:
    """Run a command of the system."""
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def prepare(folder: Path) -> None:
    """Mount folders and set up the network."""
    run("mount", "--make-rshared", "/")
    run("mount", "-t", "tmpfs", "tmpfs", "/run")
    for name in ("lock", "node"):
        Path("/run", name).mkdir()
    run("mount", "--bind", str(folder), NODE)
    # The kubelet's links to logs, and what CNI remembers.
    for mount_point in ("/var/log", "/var/lib"):
        run("mount", "-t", "tmpfs", "tmpfs", mount_point)
    for name, value in _SYSCTLS.items():
        file = Path("/run", name.replace("/", "."))
        file.write_text(f"{value}\n")
        run("mount", "--bind", str(file), f"/proc/sys/{name}")
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "add", "node0", "type", "bridge")
    run("ip", "address", "add", f"{ADDRESS}/24", "dev", "node0")
    run("ip", "link", "set", "node0", "up")
    run("ip", "route", "add", "default", "dev", "node0")
    run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.bridge.bridge-nf-call-iptables=1")


def start(name: str, *command: str) -> None:
    """Start a program with a log of its own."""
    with Path(NODE, "logs", f"{name}.log").open("wb") as log:
        subprocess.Popen(command, cwd=NODE, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT)


def until(condition: Callable[[], bool], description: str) -> None:
    """Poll until a condition holds."""
    end_s = time.monotonic() + _WITHIN_S
    while not condition():
        if time.monotonic() > end_s:
            sys.exit(f"not within {_WITHIN_S} s: {description}")
        time.sleep(0.1)


def get(path: str) -> bytes:
    """The body of the API server's answer; empty while it does not answer."""
    trust = ssl.create_default_context(cafile=f"{_KEYS}/authority.crt")
    trust.load_cert_chain(f"{_KEYS}/admin.crt", f"{_KEYS}/admin.key")
    try:
        with urllib.request.urlopen(API + path, context=trust, timeout=5) as answer:  # noqa: S310 - this node
            return bytes(answer.read())
    except (urllib.error.URLError, OSError):
        return b""


def has_ready_node() -> bool:
    """Whether the node says that it is ready."""
    node = json.loads(get("/api/v1/nodes/node1") or b"{}")
    conditions = node.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def has_containerd() -> bool:
    """Whether containerd answers."""
    completed = subprocess.run(["ctr", "-a", CONTAINERD, "version"], capture_output=True, check=False)
    return completed.returncode == 0


def main() -> None:
    """Run a node until SIGKILL."""
    prepare(Path(sys.argv[1]))
    hyperkube = f"{NODE}/programs/hyperkube"
    start("containerd", "containerd", "-c", f"{NODE}/configuration/containerd.toml")
    for name, arguments in _CONTROL.items():
        start(name, hyperkube, name, *arguments)
    until(lambda: get("/readyz") == b"ok", "the API server is ready")
    until(has_containerd, "containerd answers")
    for archive in sorted(Path(NODE, "images").iterdir()):
        run("ctr", "-a", CONTAINERD, "-n", "k8s.io", "images", "import", str(archive))
    for name, arguments in _REST.items():
        start(name, hyperkube, name, *arguments)
    until(has_ready_node, "the node is ready")
    Path(NODE, "ready").touch()
    while True:
        os.wait()


if __name__ == "__main__":
    main()
