"""`python -m tests.support.helm.make_schemas`: writes the JSON Schemas of the resources that the chart renders.

From the OpenAPI of Kubernetes' API server and the CRDs of KEDA and Gateway API, as their Go modules have them (100 MB,
read through Go's module proxy). Descriptions are left out, and keys that are not declared are refused.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

SCHEMAS: Final = Path(__file__).parents[2] / "infra/helm/schemas"
KUBERNETES: Final = "k8s.io/kubernetes@v1.37.2"
KEDA: Final = "github.com/kedacore/keda/v2@v2.21.0"
CRDS: Final = {
    KEDA: "config/crd/bases/keda.sh_scaledobjects.yaml",
    "sigs.k8s.io/gateway-api@v1.4.0": "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
}
KINDS: Final = {
    ("v1", "ConfigMap"): "io.k8s.api.core.v1.ConfigMap",
    ("v1", "Pod"): "io.k8s.api.core.v1.Pod",
    ("v1", "Service"): "io.k8s.api.core.v1.Service",
    ("v1", "ServiceAccount"): "io.k8s.api.core.v1.ServiceAccount",
    ("apps/v1", "Deployment"): "io.k8s.api.apps.v1.Deployment",
    ("apps/v1", "StatefulSet"): "io.k8s.api.apps.v1.StatefulSet",
    ("autoscaling/v2", "HorizontalPodAutoscaler"): "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
    ("batch/v1", "Job"): "io.k8s.api.batch.v1.Job",
    ("networking.k8s.io/v1", "NetworkPolicy"): "io.k8s.api.networking.v1.NetworkPolicy",
    ("rbac.authorization.k8s.io/v1", "Role"): "io.k8s.api.rbac.v1.Role",
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): "io.k8s.api.rbac.v1.RoleBinding",
    ("policy/v1", "PodDisruptionBudget"): "io.k8s.api.policy.v1.PodDisruptionBudget",
}
_REFERENCE: Final = "#/definitions/"
_QUANTITIES: Final = (
    "io.k8s.apimachinery.pkg.api.resource.Quantity",
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
)
"""Texts in the OpenAPI, which are numbers as well."""


def module(name: str) -> Path:
    """The folder of a Go module."""
    command = ["go", "mod", "download", "-json", name]
    return Path(json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["Dir"])


def strict(schema: Any) -> Any:
    """A schema that refuses keys which are not declared, without descriptions."""
    if isinstance(schema, list):
        return [strict(subschema) for subschema in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    strict_schema = {
        key: {name: strict(subschema) for name, subschema in value.items()}
        if key == "properties"
        else strict(value)
        for key, value in schema.items()
        if not key.startswith("x-") and key not in {"description", "format"}
    }
    is_open = schema.get("x-kubernetes-preserve-unknown-fields")
    if "properties" in strict_schema and not is_open:
        strict_schema.setdefault("additionalProperties", False)
    return strict_schema


def references(schema: Any) -> Iterator[str]:
    """The names of the definitions to which a schema refers."""
    if isinstance(schema, list):
        for subschema in schema:
            yield from references(subschema)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key == "$ref":
                yield value.removeprefix(_REFERENCE)
            else:
                yield from references(value)


def kubernetes_schemas() -> dict[str, Any]:
    """The definitions of the kinds, and those to which they refer."""
    file = module(KUBERNETES) / "api/openapi-spec/swagger.json"
    definitions = json.loads(file.read_bytes())["definitions"]
    used_schemas: dict[str, Any] = {}
    waiting = list(KINDS.values())
    while waiting:
        name = waiting.pop()
        if name not in used_schemas:
            used_schemas[name] = (
                {"type": ["string", "number"]} if name in _QUANTITIES else strict(definitions[name])
            )
            waiting += references(used_schemas[name])
    return {
        "module": KUBERNETES,
        "kinds": {f"{version} {kind}": f"{_REFERENCE}{name}" for (version, kind), name in KINDS.items()},
        "definitions": used_schemas,
    }


def resource_schemas() -> dict[str, Any]:
    """The schemas of the resources of other projects."""
    kinds = {}
    for name, path in CRDS.items():
        declared = YAML(typ="safe").load(module(name) / path)["spec"]
        for version in declared["versions"]:
            schema = strict(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}
            kinds[f"{declared['group']}/{version['name']} {declared['names']['kind']}"] = schema
    return {"modules": list(CRDS), "kinds": kinds}


def main() -> None:
    """The command."""
    SCHEMAS.mkdir(parents=True, exist_ok=True)
    for name, content in {"kubernetes": kubernetes_schemas(), "others": resource_schemas()}.items():
        text = json.dumps(content, sort_keys=True, separators=(",", ":"))
        (SCHEMAS / f"{name}.json").write_text(f"{text}\n")


if __name__ == "__main__":
    main()
