"""Checks of answers against the OpenAPI document that a service serves."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import jsonschema_rs


def references(node: Any) -> Iterator[str]:
    """Every `$ref` below a node."""
    if isinstance(node, Mapping):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"]
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def require_described(document: Mapping[str, Any], method: str, path: str, status: int, body: Any) -> None:
    """Fail unless an operation has this status, and the body of its answer the schema of the document.

    Args:
        document: as served.
        method: of the request.
        path: of the request, without its query.
        status: of the answer; 201 is described as 200.
        body: JSON of the answer.
    """
    for template, operations in document["paths"].items():
        if re.fullmatch(re.sub(r"\{[^}]*\}", "[^/]+", template), path) and method.lower() in operations:
            break
    else:
        raise AssertionError(f"{method} {path} is not in the document")
    responses = operations[method.lower()]["responses"]
    response = responses.get(str(200 if status == 201 else status))
    assert response is not None, f"{method} {template} has no status {status} in the document"
    (content,) = response["content"].values()
    validator = jsonschema_rs.Draft202012Validator(
        {**content["schema"], "components": document["components"]}
    )
    problems = [f"{error.instance_path}: {error.message}" for error in validator.iter_errors(body)]
    assert problems == [], f"{method} {template} {status}"
