"""A real API server of Kubernetes, without nodes: it validates, admits and keeps resources, and nothing runs."""

import os
import secrets
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.kubernetes.programs import program

from hifi_infra.ports import free_port

_READY_WITHIN_S: Final = 120
_STOP_WITHIN_S: Final = 20


@dataclass(frozen=True, slots=True)
class ApiServer:
    """A running API server.

    Attributes:
        hyperkube: etcd, Kubernetes and kubectl.
        configuration: file for KUBECONFIG, with all rights.
        url: of the API.
        token_file: with the token of a user with all rights.
        trust_file: with its certificate, PEM.
    """

    hyperkube: Path
    configuration: Path
    url: str
    token_file: Path
    trust_file: Path

    def kubectl(self, *arguments: str, input_text: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run kubectl; its output has warnings, too."""
        return subprocess.run(
            [self.hyperkube, "kubectl", *arguments],
            env={**os.environ, "KUBECONFIG": str(self.configuration)},
            input=input_text,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )


@contextmanager
def api_server(folder: Path) -> Iterator[ApiServer]:
    """Run etcd and an API server, with all state in a folder, on free ports of 127.0.0.1."""
    hyperkube = program("hyperkube")
    clients, peers, port, token = free_port(), free_port(), free_port(), secrets.token_hex(16)
    subprocess.run(
        ["openssl", "genrsa", "-out", folder / "accounts.key", "2048"], check=True, capture_output=True
    )
    (folder / "token").write_text(token)
    (folder / "tokens").write_text(f"{token},admin,admin,system:masters\n")
    commands = {
        "etcd": [
            f"--data-dir={folder}/etcd",
            f"--listen-client-urls=http://127.0.0.1:{clients}",
            f"--advertise-client-urls=http://127.0.0.1:{clients}",
            f"--listen-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-advertise-peer-urls=http://127.0.0.1:{peers}",
            f"--initial-cluster=default=http://127.0.0.1:{peers}",
            "--unsafe-no-fsync",
            "--log-level=warn",
        ],
        "kube-apiserver": [
            f"--etcd-servers=http://127.0.0.1:{clients}",
            "--bind-address=127.0.0.1",
            f"--secure-port={port}",
            f"--cert-dir={folder}/certificates",
            f"--token-auth-file={folder}/tokens",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={folder}/accounts.key",
            f"--service-account-signing-key-file={folder}/accounts.key",
            "--service-cluster-ip-range=10.96.0.0/16",
            # Accounts get no tokens: no controller manager makes them.
            "--disable-admission-plugins=ServiceAccount",
        ],
    }
    configuration = folder / "kubeconfig"
    configuration.write_text(
        f"""\
apiVersion: v1
kind: Config
clusters: [{{name: test, cluster: {{server: "https://127.0.0.1:{port}", insecure-skip-tls-verify: true}}}}]
users: [{{name: admin, user: {{token: {token}}}}}]
contexts: [{{name: test, context: {{cluster: test, user: admin}}}}]
current-context: test
"""
    )
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for name, arguments in commands.items():
            with (folder / f"{name}.log").open("wb") as log:
                processes.append(
                    subprocess.Popen([hyperkube, name, *arguments], stdout=log, stderr=subprocess.STDOUT)
                )
        _wait_until_ready(f"https://127.0.0.1:{port}/readyz", token, folder / "kube-apiserver.log")
        yield ApiServer(
            hyperkube,
            configuration,
            f"https://127.0.0.1:{port}",
            folder / "token",
            folder / "certificates/apiserver.crt",
        )
    finally:
        for process in reversed(processes):
            end(process)


def end(process: "subprocess.Popen[bytes]") -> None:
    """End a program of Kubernetes, by force if it does not end by itself."""
    process.terminate()
    try:
        process.wait(_STOP_WITHIN_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_until_ready(url: str, token: str, log: Path) -> None:
    trust = ssl.create_default_context()
    trust.check_hostname = False
    trust.verify_mode = ssl.CERT_NONE
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"})  # noqa: S310 - this machine
    end_s = time.monotonic() + _READY_WITHIN_S
    while time.monotonic() < end_s:
        try:
            with urllib.request.urlopen(request, context=trust, timeout=2):  # noqa: S310 - this machine
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise AssertionError(f"the API server is not ready:\n{log.read_text()[-2000:]}")
