"""The CRDs of KEDA and Gateway API on a real API server, whole, as their Go modules have them."""

from tests.support.helm.make_schemas import CRDS, module
from tests.support.kubernetes.api_server import ApiServer


def install_crds(server: ApiServer) -> None:
    """Install them, and wait until the API server has their kinds."""
    for name, path in CRDS.items():
        completed = server.kubectl("apply", "--server-side", "-f", str(module(name) / path))
        assert completed.returncode == 0, completed.stdout
    completed = server.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    assert completed.returncode == 0, completed.stdout
