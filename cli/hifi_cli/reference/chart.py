"""Files of the Helm chart that are made from the code, and the reference of its values in docs/kubernetes.md."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson
from pydantic_settings import BaseSettings
from ruamel.yaml import YAML

from hifi.control.principals.oidc.settings import OidcSettings
from hifi.kafka.security.settings import KafkaSecuritySettings
from hifi.pipe.limits import PipeLimits
from hifi.pipe.vault import VaultSettings
from hifi.runtime.connect_credentials import ConnectSettings
from hifi.runtime.egress import EgressSettings
from hifi_cli.reference.packages import ROOT
from hifi_cli.reference.pages import settings_of
from hifi_infra.kafka.setup_job import SetupSettings
from hifi_observe.alarms.alarm import KINDS

CHART: Final = ROOT / "infra/helm/hifi"
SERVICES: Final = (
    "ingest",
    "collect",
    "normalize",
    "enrich",
    "egest",
    "retrier",
    "lake",
    "state",
    "view",
    "observe",
    "rollout",
    "scale",
    "deploy",
    "manage",
)
"""The services of the chart that hifi's own settings configure."""
_EVERY_PROCESS: Final[tuple[type[BaseSettings], ...]] = (
    KafkaSecuritySettings,
    PipeLimits,
    VaultSettings,
    EgressSettings,
)
_FURTHER: Final[Mapping[str, tuple[type[BaseSettings], ...]]] = {
    "collect": (ConnectSettings,),
    "observe": (OidcSettings,),
    "manage": (OidcSettings,),
}
_LINE: Final = re.compile(r"(?P<indent> *)(?P<key>[A-Za-z]+):")
_FIRST_CLAUSE: Final = re.compile(r"[;.](?: |$)")


def chart_files() -> dict[str, str]:
    """Return the name below the chart's folder and the text of each file that is made from the code."""
    alarms = [
        {
            "alert": "Hifi" + "".join(word.capitalize() for word in name.split("-")),
            "kind": name,
            "summary": kind.summary,
        }
        for name, kind in KINDS.items()
    ]
    return {"files/alarms.json": _json(alarms), "files/settings.json": _json(_variables())}


def _json(content: object) -> str:
    return orjson.dumps(content, option=orjson.OPT_INDENT_2).decode() + "\n"


def _variables() -> dict[str, list[str]]:
    """Return service to the variables that it reads."""
    models = {service: settings_of(service) for service in SERVICES} | {"setup": SetupSettings}
    return {
        service: sorted(
            f"{declared.model_config['env_prefix']}{name.upper()}"
            for declared in (model, *_EVERY_PROCESS, *_FURTHER.get(service, ()))
            for name in declared.model_fields
        )
        for service, model in models.items()
    }


@dataclass(frozen=True, slots=True)
class CommentedValues:
    """The values below one comment of values.yaml.

    Attributes:
        values: path, such as `kafka.bundled.size`, to its choices and its default. NAME stands for a service; a value
            of several services is with the first of them.
        meaning: the first clause of the comment.
    """

    values: dict[str, str]
    meaning: str


def commented_values(chart: Path = CHART) -> list[CommentedValues]:
    """Return the values in the order of values.yaml, each with the comment above it or above those before it."""
    text = (chart / "values.yaml").read_text("utf-8")
    values = YAML(typ="safe").load(text)
    schema = orjson.loads((chart / "values.schema.json").read_bytes())
    path: list[str] = []
    names: set[str] = set()
    comment = ""
    value_groups: list[CommentedValues] = []
    for line in text.splitlines():
        content = line.strip()
        if content.startswith("#"):
            comment = f"{comment} {content.removeprefix('#').strip()}".strip()
        elif match := _LINE.match(line):
            path[len(match["indent"]) // 2 :] = [match["key"]]
            declared = schema_at(schema, path)
            if "properties" not in declared or path[-1] == "resources":
                if comment:
                    value_groups.append(CommentedValues({}, _FIRST_CLAUSE.split(comment, maxsplit=1)[0]))
                name = ".".join(path if path[0] != "services" else ["services", "NAME", *path[2:]])
                if name not in names and "resources" not in path[:-1]:
                    names.add(name)
                    value_groups[-1].values[name] = _default(values, path, declared)
            comment = ""
        elif not content:
            comment = ""
    return value_groups


def schema_at(schema: Mapping[str, Any], path: list[str]) -> Mapping[str, Any]:
    """Return the JSON Schema of the value at a path; that of a map's content is empty."""
    subschema = schema
    for key in path:
        subschema = subschema.get("properties", {}).get(key, {})
        if "$ref" in subschema:
            subschema = schema["$defs"][subschema["$ref"].rpartition("/")[2]]
    return subschema


def _default(values: Any, path: list[str], schema: Mapping[str, Any]) -> str:
    for key in path:
        values = values[key]
    choices = ", ".join(f"`{choice}`" for choice in schema.get("enum", ()) if choice not in {"", values})
    if values == "" or isinstance(values, dict | list):
        return choices
    default = f"`{str(values).lower() if isinstance(values, bool) else values}`"
    return f"{default}; or {choices}" if choices else default


def values_list() -> str:
    """Return the reference of the values in Markdown."""
    return "\n".join(_line(value_group) for value_group in commented_values())


def _line(value_group: CommentedValues) -> str:
    names = (
        f"`{name}`" + (f" ({default})" if default else "") for name, default in value_group.values.items()
    )
    return f"- {', '.join(names)}: {value_group.meaning}"
