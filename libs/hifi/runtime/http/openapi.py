"""Build the OpenAPI document of an API from the table of its operations."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from starlette.responses import Response


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
    secured: bool = False
    """The operation needs the bearer token."""
    body: dict[str, Any] | None = None
    """JSON Schema of the request body."""
    result: dict[str, Any] = field(default_factory=dict)
    """JSON Schema of the response body; fields that it does not list may change."""


@dataclass(frozen=True, slots=True)
class ApiDescription:
    """What the OpenAPI document says besides the operations.

    Attributes:
        title: name of the API.
        text: about the API as a whole.
        statuses: status of a problem and its description.
        path_parameters: name of a path parameter and its description.
        security: name of the bearer token.
    """

    title: str
    text: str
    statuses: Mapping[int, str]
    path_parameters: Mapping[str, str]
    security: str


def document(operations: Iterable[Operation], version: str, api: ApiDescription) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document."""
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, api)
    return {
        "openapi": "3.1.0",
        "info": {"title": api.title, "version": version, "description": api.text},
        "paths": paths,
        "components": {
            "securitySchemes": {api.security: {"type": "http", "scheme": "bearer"}},
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


def json_response(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A JSON response that must not be cached."""
    return Response(
        orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS),
        status,
        {"cache-control": "no-store", **(headers or {})},
        media_type="application/json",
    )


def _operation(operation: Operation, api: ApiDescription) -> dict[str, Any]:
    path_names = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    parameters: list[dict[str, Any]] = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": api.path_parameters[name],
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
            str(status): {"description": api.statuses[status], "content": problem}
            for status in operation.statuses
        },
    }
    if operation.secured:
        described["security"] = [{api.security: []}]
    if operation.body is not None:
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": operation.body}},
        }
    return described
