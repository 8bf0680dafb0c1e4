"""Build the OpenAPI document from the table of operations."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation of the API; `name` is its operation id and the name of its method of `Api`."""

    method: str
    path: str
    name: str
    summary: str
    parameters: dict[str, str] = field(default_factory=dict)
    """Query parameters and their descriptions."""
    statuses: tuple[int, ...] = ()
    """Response statuses other than 200."""
    operator: bool = False
    """The operation needs the operator token."""
    body: dict[str, Any] | None = None
    """JSON Schema of the request body."""
    result: dict[str, Any] = field(default_factory=dict)
    """JSON Schema of the response body; fields that it does not list may change."""


_STATUS_DESCRIPTIONS: Final = {
    400: "The request is invalid.",
    401: "The operator token is missing or wrong.",
    404: "The pipe or minute was not found.",
    409: "Another replay is running.",
    503: "Kafka does not answer, or too many look-ups are running (then with `Retry-After`).",
}
_PATH_PARAMETERS: Final = {
    "pipe": "Name of the pipe.",
    "minute": "Minutes since 1970 UTC, or `2026-11-21T10:04` in UTC.",
}


def document(operations: Iterable[Operation], version: str) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document."""
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "hifi observe",
            "version": version,
            "description": "Loss, lag and availability of every minute. Names of times end in their unit: `_us` "
            "microseconds, `_ms` milliseconds, `_s` seconds; minutes are counted from 1970 UTC.",
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


def _operation(operation: Operation) -> dict[str, Any]:
    path_names = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    parameters: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PATH_PARAMETERS[name],
            "schema": {"type": "string"},
        }
        for name in path_names
    ]
    parameters += [
        {"name": name, "in": "query", "description": description, "schema": {"type": "string"}}
        for name, description in operation.parameters.items()
    ]
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    described: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "JSON.", "content": {"application/json": {"schema": operation.result}}}
        }
        | {
            str(status): {"description": _STATUS_DESCRIPTIONS[status], "content": problem}
            for status in operation.statuses
        },
    }
    if operation.operator:
        described["security"] = [{"operator": []}]
    if operation.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": operation.body}},
        }
    return described
