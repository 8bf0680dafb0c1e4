"""A Kubernetes node of one machine, with everything that pods need, in namespaces of its own.

It uses containerd and runc, has CoreDNS and metrics-server as pods, and leaves the machine's network alone. It takes
7 s to start and 1.3 GB of memory. Network policies are enforced by nothing in it.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil
import pytest
from tests.support.kubernetes.keys import make_keys
from tests.support.kubernetes.places import CONTAINERD, NODE
from tests.support.kubernetes.program_image import write_image
from tests.support.kubernetes.programs import PACKAGES, SOURCE, cache, program

from hifi_infra.process.parent_death import death_signal_command

ROOT: Final = SOURCE.parents[2]
READY_WITHIN_S: Final = 900
"""Bound on every wait: pods share two slow cores with other tests."""
_NEEDED: Final = {
    "containerd": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "nft": "nftables",
    "ip": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
}
"""Program to its package in Debian."""
_CGROUPS: Final = Path("/sys/fs/cgroup")
_PODS: Final = "hifi-node"
"""Name of the cgroup of all pods, as configuration/kubelet.yaml has it."""
_WEIGHT: Final = 16
"""Share of CPU time of all pods together, as a number of processes beside them; a share of 1 would starve them."""
_IN_PODS: Final = ("pause", "coredns", "metrics-server")


@dataclass(frozen=True, slots=True)
class Node:
    """A running node.

    Attributes:
        folder: of its state.
        process: number of its first process.
    """

    folder: Path
    process: int

    def command(self, *words: str) -> list[str]:
        """A command that runs inside the node."""
        environment = (
            f"KUBECONFIG={NODE}/keys/admin.conf",
            f"CONTAINERD_ADDRESS={CONTAINERD}",
            "CONTAINERD_NAMESPACE=k8s.io",
            f"PYTHONPATH={ROOT}",  # the working directory is not kept
        )
        return ["nsenter", "-t", str(self.process), "-n", "-m", "-p", "env", *environment, *words]

    def run(self, *words: str, input_text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a command inside the node; its output has errors, too."""
        return subprocess.run(
            self.command(*words),
            input=input_text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )

    @contextlib.contextmanager
    def running(self, log: Path, *words: str) -> Iterator[None]:
        """A command that runs inside the node until the block ends, with SIGTERM; its output goes to a log."""
        with log.open("ab") as output:
            entering = subprocess.Popen(
                self.command(*words), cwd=ROOT, stdout=output, stderr=subprocess.STDOUT
            )
        try:
            yield
        finally:
            for child in psutil.Process(entering.pid).children() if entering.poll() is None else ():
                child.terminate()
            entering.wait(60)

    @property
    def kubectl_words(self) -> tuple[str, str]:
        """The command kubectl inside the node."""
        return f"{NODE}/programs/hyperkube", "kubectl"

    def kubectl(self, *arguments: str, input_text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl; its output has warnings, too."""
        return self.run(*self.kubectl_words, *arguments, input_text=input_text)

    def ask(self, *arguments: str, input_text: str | None = None) -> str:
        """The output of kubectl, which must succeed."""
        completed = self.kubectl(*arguments, input_text=input_text)
        assert completed.returncode == 0, f"kubectl {' '.join(arguments)}:\n{completed.stdout}"
        return completed.stdout

    def load_images(self, *images: str) -> None:
        """Bring images of the Docker engine to the node."""
        save = subprocess.Popen(["docker", "save", *images], stdout=subprocess.PIPE)
        with save:
            load = subprocess.run(
                self.command("ctr", "images", "import", "-"),
                stdin=save.stdout,
                capture_output=True,
                check=False,
            )
        assert (save.returncode, load.returncode) == (0, 0), load.stderr.decode()


def until(condition: Callable[[], object], description: str, within_s: float = READY_WITHIN_S) -> None:
    """Poll until a condition holds."""
    end_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end_s, f"not within {within_s:.0f} s: {description}"
        time.sleep(0.5)


@contextlib.contextmanager
def node(folder: Path) -> Iterator[Node]:
    """Run a node with all state in a folder; skips the test where something is missing. One at a time on a machine."""
    _skip_if_something_is_missing()
    programs = [program(name) for name in PACKAGES]
    with (cache() / "kubernetes-node.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _remove_cgroups()
        _make_cgroups()
        _fill(folder, programs)
        with (folder / "logs/node.log").open("wb") as log:
            node_process = subprocess.Popen(
                [
                    *death_signal_command(),
                    *("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
                    *("--propagation", "private"),
                    *(sys.executable, "-m", "tests.support.kubernetes.node_process", str(folder)),
                ],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            until(lambda: _is_ready(folder, node_process), "the node is ready")
            running_node = Node(folder, psutil.Process(node_process.pid).children()[0].pid)
            for manifest in sorted((SOURCE / "manifests").iterdir()):
                running_node.ask("apply", "-f", "-", input_text=manifest.read_text())
            for deployment in ("coredns", "metrics-server"):
                running_node.ask(
                    "-n", "kube-system", "rollout", "status", "deployment", deployment, "--timeout=15m"
                )
            yield running_node
        finally:
            for child in psutil.Process(node_process.pid).children() if node_process.poll() is None else ():
                child.send_signal(signal.SIGKILL)
            node_process.wait()
            _remove_cgroups()
            _remove_state(folder)


def _skip_if_something_is_missing() -> None:
    if os.geteuid() != 0:
        pytest.skip("a Kubernetes node needs root, for namespaces, cgroups and mounts")
    missing_packages = sorted(
        {package for needed, package in _NEEDED.items() if shutil.which(needed) is None}
    )
    if missing_packages:
        pytest.skip(f"a Kubernetes node needs the packages {', '.join(missing_packages)}")


def _fill(folder: Path, programs: list[Path]) -> None:
    for name in ("keys", "logs", "programs", "images", "cni"):
        (folder / name).mkdir()
    shutil.copytree(SOURCE / "configuration", folder / "configuration")
    (folder / "configuration/pods.conflist").rename(folder / "cni/10-pods.conflist")
    for file in programs:
        shutil.copy(file, folder / "programs")
    for name in _IN_PODS:
        write_image(folder / "programs" / name, f"localhost/{name}:1", folder / "images" / f"{name}.tar")
    make_keys(folder / "keys")


def _is_ready(folder: Path, node_process: "subprocess.Popen[bytes]") -> bool:
    assert node_process.poll() is None, (folder / "logs/node.log").read_text()
    return (folder / "ready").exists()


def _remove_state(folder: Path) -> None:
    """Remove all but logs: images alone take gigabytes."""
    for path in folder.iterdir():
        if path.is_dir() and path.name not in {"logs", "pod-logs"}:
            shutil.rmtree(path)


def _make_cgroups() -> None:
    """Make an empty cgroup for pods, in each hierarchy where cgroups are of version 1."""
    is_one_hierarchy = (_CGROUPS / "cgroup.controllers").exists()
    for hierarchy in (_CGROUPS,) if is_one_hierarchy else _CGROUPS.iterdir():
        if hierarchy.is_dir() and not hierarchy.is_symlink():
            (hierarchy / _PODS).mkdir()
    cpus = _CGROUPS / "cpuset"
    for name in ("cpuset.cpus", "cpuset.mems"):
        if (cpus / name).exists():
            (cpus / _PODS / name).write_text((cpus / name).read_text())
    for weight_file, of_one in (
        (_CGROUPS / "cpu" / _PODS / "cpu.shares", 1024),
        (_CGROUPS / _PODS / "cpu.weight", 100),
    ):
        if weight_file.exists():
            weight_file.write_text(str(_WEIGHT * of_one))


def _remove_cgroups() -> None:
    """Remove the cgroups of a node that has ended; the kernel takes a moment to empty them."""
    end_s = time.monotonic() + 30
    while remaining_groups := [*_CGROUPS.glob(f"*/{_PODS}"), *_CGROUPS.glob(_PODS)]:
        for group in remaining_groups:
            for cgroup in (
                *sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True),
                group,
            ):
                with contextlib.suppress(OSError):
                    cgroup.rmdir()
        assert time.monotonic() < end_s, f"cgroups of a node stay: {remaining_groups}"
        time.sleep(0.1)
