"""The CRDs of KEDA and Gateway API on a real API server, whole, as their Go modules have them."""

import subprocess
from typing import Protocol

from tests.support.helm.make_schemas import CRDS, module


class KubectlRunner(Protocol):
    """What runs kubectl: an API server, or a node."""

    def kubectl(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run it."""


def install_crds(server: KubectlRunner) -> None:
    """Install them, and wait until the API server has their kinds."""
    for name, path in CRDS.items():
        completed = server.kubectl("apply", "--server-side", "-f", str(module(name) / path))
        assert completed.returncode == 0, completed.stdout
    completed = server.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    assert completed.returncode == 0, completed.stdout
