"""The normal form of a schema, as `normalize=true` asks for it: the same for schemas that mean the same. Pure."""

from typing import Any, Final

import orjson

from hifi.avro.schema import PRIMITIVES
from hifi_manage.schemas.registered import SchemaBody

_NAMED: Final = {"record", "error", "enum", "fixed"}


def normalized(body: SchemaBody) -> SchemaBody:
    """A valid schema with full names, plain names of primitive types, sorted keys and sorted references."""
    tree = _normal(_tree(body.text), "")
    references = sorted(set(body.references), key=lambda reference: (reference.name, reference.version))
    return SchemaBody(orjson.dumps(tree, option=orjson.OPT_SORT_KEYS).decode(), tuple(references))


def _tree(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:  # the bare name of a type
        return text


def _normal(node: Any, namespace: str) -> Any:
    if isinstance(node, str):
        return node if node in PRIMITIVES else _full(node, namespace)
    if isinstance(node, list):
        return [_normal(branch, namespace) for branch in node]
    kind = node["type"]
    if isinstance(kind, str) and kind in _NAMED:
        return _normal_named(node, namespace)
    if node.keys() == {"type"}:
        return _normal(kind, namespace)
    content = dict(node)
    content["type"] = kind if kind in ("array", "map") else _normal(kind, namespace)
    for name in {"array": ("items",), "map": ("values",)}.get(kind, ()) if isinstance(kind, str) else ():
        content[name] = _normal(node[name], namespace)
    return content


def _normal_named(node: dict[str, Any], namespace: str) -> dict[str, Any]:
    name = _full(node["name"], node.get("namespace", namespace))
    inner_namespace = name.rpartition(".")[0]
    content = {key: value for key, value in node.items() if key != "namespace"} | {"name": name}
    if "aliases" in node:
        content["aliases"] = [_full(alias, inner_namespace) for alias in node["aliases"]]
    if "fields" in node:
        content["fields"] = [
            {**field, "type": _normal(field["type"], inner_namespace)} for field in node["fields"]
        ]
    return content


def _full(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"
