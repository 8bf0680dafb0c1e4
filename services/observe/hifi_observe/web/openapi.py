"""The OpenAPI document, made from the table of the API's operations."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation. `name` is that of the handler's method."""

    method: str
    path: str
    name: str
    summary: str
    parameters: dict[str, str] = field(default_factory=dict)
    """Query parameter to its description."""
    statuses: tuple[int, ...] = ()
    """Beside 200."""
    operator: bool = False
    """Needs the operator token."""
    body: dict[str, Any] | None = None
    """JSON Schema of the request's body."""
    result: dict[str, Any] = field(default_factory=dict)
    """JSON Schema of the answer, as far as it is promised."""


_MEANS: Final = {
    400: "The request is wrong.",
    401: "No operator token, or a wrong one.",
    404: "There is no such thing.",
    409: "Another one is being carried out.",
    503: "Kafka does not answer.",
}
_PATHS: Final = {
    "pipe": "Name of the pipe.",
    "minute": "Minutes since 1970 UTC, or `2026-11-21T10:04` in UTC.",
}


def document(operations: Iterable[Operation], version: str) -> dict[str, Any]:
    """The document, OpenAPI 3.1."""
    paths: dict[str, Any] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "hifi observe",
            "version": version,
            "description": "Loss, lag and availability of every minute. Times end in their unit: `_us` microseconds, "
            "`_ms` milliseconds, `_s` seconds; minutes count from 1970 UTC.",
        },
        "paths": paths,
        "components": {
            "securitySchemes": {"operator": {"type": "http", "scheme": "bearer"}},
            "schemas": {
                "Problem": {
                    "type": "object",
                    "properties": {
                        "title": {"type": "string"},
                        "status": {"type": "integer"},
                        "detail": {"type": "string"},
                    },
                }
            },
        },
    }


def _operation(one: Operation) -> dict[str, Any]:
    named = [part[1:-1] for part in one.path.split("/") if part.startswith("{")]
    parameters: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PATHS[name],
            "schema": {"type": "string"},
        }
        for name in named
    ]
    parameters += [
        {"name": name, "in": "query", "description": says, "schema": {"type": "string"}}
        for name, says in one.parameters.items()
    ]
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    made: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "JSON.", "content": {"application/json": {"schema": one.result}}}
        }
        | {str(status): {"description": _MEANS[status], "content": problem} for status in one.statuses},
    }
    if one.operator:
        made["security"] = [{"operator": []}]
    if one.body is not None:
        made["requestBody"] = {"required": True, "content": {"application/json": {"schema": one.body}}}
    return made
