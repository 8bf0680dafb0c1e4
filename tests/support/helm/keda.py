"""KEDA on a node, as pods: its operator and its metrics server, built with the scalers that the chart uses.

Both are built once, as the programs of the node (20 minutes). The other scalers are left out, since their clients are
1,300 more packages, and so is the webhook, which checks ScaledObjects before they are stored.
"""

import hashlib
import io
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML
from tests.support.helm.make_schemas import KEDA, module
from tests.support.kubernetes.node import Node
from tests.support.kubernetes.places import NODE
from tests.support.kubernetes.program_image import write_image
from tests.support.kubernetes.programs import build, cache, program

NAMESPACE: Final = "keda"
DEPLOYMENTS: Final = ("keda-operator", "keda-metrics-apiserver")
_PROGRAMS: Final = {"keda": "./cmd/operator", "keda-adapter": "./cmd/adapter"}
"""Program of each deployment to its package."""
_TRIGGERS: Final = frozenset({"cpu", "memory", "kafka"})
_SCALER_FILES: Final = frozenset({"cpu_memory_scaler.go", "kafka_scaler.go", "scaler.go"})
_USER: Final = 65532


def install_keda(node: Node) -> None:
    """Install it, and wait until the API server gets its metrics."""
    for name in _PROGRAMS:
        write_image(_program(name), f"localhost/{name}:1", node.folder / f"images/{name}.tar")
        imported = node.run("ctr", "images", "import", f"{NODE}/images/{name}.tar")
        assert imported.returncode == 0, imported.stdout
    manifest = io.StringIO()
    YAML(typ="safe").dump_all(_resources(), manifest)
    node.ask("apply", "--server-side", "-f", "-", input_text=manifest.getvalue())
    for deployment in DEPLOYMENTS:
        node.ask("-n", NAMESPACE, "rollout", "status", "deployment", deployment, "--timeout=15m")
    node.ask(
        "wait", "--for=condition=Available", "apiservice/v1beta1.external.metrics.k8s.io", "--timeout=15m"
    )


def _resources() -> Iterator[Any]:
    """KEDA's own resources, with the images of the node."""
    command = (program("hyperkube"), "kubectl", "kustomize", module(KEDA) / "config/default")
    rendered = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for resource in YAML(typ="safe").load_all(rendered):
        if "admission" in resource["metadata"]["name"]:
            continue
        if resource["kind"] == "Deployment":
            pod = resource["spec"]["template"]["spec"]
            [container] = pod["containers"]
            name = container["command"][0].removeprefix("/")
            container |= {"image": f"localhost/{name}:1", "imagePullPolicy": "Never"}
            pod["securityContext"]["runAsUser"] = _USER
            if name == "keda":
                container["args"].append("--enable-webhook-patching=false")
        yield resource


def _program(name: str) -> Path:
    digest = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:8]
    built = cache() / f"keda-{KEDA.rpartition('@')[2]}-{digest}" / name
    if not built.exists():
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "keda"
            shutil.copytree(module(KEDA), source)
            for path in (source, *source.rglob("*")):
                path.chmod(0o755)
            _leave_out_scalers(source / "pkg")
            build(source, _PROGRAMS[name], built)
    return built


def _leave_out_scalers(packages: Path) -> None:
    """Remove all scalers but those of the chart's triggers, and the cases that make them."""
    for file in (packages / "scalers").glob("*.go"):
        if file.name not in _SCALER_FILES:
            file.unlink()
    builder = packages / "scaling/scalers_builder.go"
    lines: list[str] = []
    is_left_out = False
    for line in builder.read_text().splitlines():
        if line.startswith("\tcase "):
            is_left_out = _TRIGGERS.isdisjoint(re.findall('"([^"]+)"', line))
        elif line.startswith(("\tdefault:", "\t}")):
            is_left_out = False
        if not is_left_out:
            lines.append(line)
    builder.write_text("\n".join(lines) + "\n")
