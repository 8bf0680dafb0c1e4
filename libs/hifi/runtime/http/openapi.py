"""Build the OpenAPI document of an API from the table of its operations and the types of their bodies."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import orjson
from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema
from starlette.responses import Response

from hifi.runtime.http.problem import MEDIA_TYPE, ProblemDetails

_JSON: Final = "application/json"
_SCHEMAS: Final = "#/components/schemas/"
PROBLEM: Final = {"$ref": f"{_SCHEMAS}Problem"}


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
    """Statuses of problems."""
    secured: bool = False
    """The operation needs the bearer token."""
    body: Any = None
    """Type of the request body; None: there is none."""
    answer: Any = None
    """Type of the JSON of the response; None: it is not described. Members that the type does not have may change."""
    successes: tuple[int, ...] = (200,)
    """Statuses of that response."""
    media: str = _JSON
    """Media type of that response."""


@dataclass(frozen=True, slots=True)
class ApiDescription:
    """The texts of the OpenAPI document besides those of the operations.

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


class _SchemaGenerator(GenerateJsonSchema):
    """Leaves out the titles of fields, which only repeat their names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        """No field has a title."""
        del schema
        return False


class Schemas:
    """The JSON Schemas of the types of an API; what several of them use is one component of its document.

    Args:
        bodies: types of request bodies, as pydantic reads them.
        answers: types of responses.
        problem: type of error responses, which is the component `Problem`.
    """

    def __init__(self, bodies: Sequence[Any], answers: Sequence[Any], problem: Any = ProblemDetails) -> None:
        modes: tuple[tuple[Literal["validation", "serialization"], Sequence[Any]], ...] = (
            ("validation", bodies),
            ("serialization", [*answers, problem]),
        )
        inputs = [
            (repr(kind), mode, TypeAdapter(kind)) for mode, kinds in modes for kind in dict.fromkeys(kinds)
        ]
        self._schemas, shared_schemas = TypeAdapter.json_schemas(
            inputs, ref_template=f"{_SCHEMAS}{{model}}", schema_generator=_SchemaGenerator
        )
        self.components: dict[str, Any] = shared_schemas.get("$defs", {})
        """Name to schema."""
        problem_name = self.answer(problem)["$ref"].removeprefix(_SCHEMAS)
        self.components["Problem"] = self.components.pop(problem_name)

    def body(self, kind: Any) -> dict[str, Any]:
        """The schema of a request body."""
        return self._schemas[repr(kind), "validation"]

    def answer(self, kind: Any) -> dict[str, Any]:
        """The schema of a response."""
        return self._schemas[repr(kind), "serialization"]


def document(operations: Iterable[Operation], version: str, api: ApiDescription) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document."""
    operations = tuple(operations)
    schemas = Schemas(
        [operation.body for operation in operations if operation.body is not None],
        [operation.answer for operation in operations if operation.answer is not None],
    )
    paths: dict[str, Any] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, api, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": api.title, "version": version, "description": api.text},
        "paths": paths,
        "components": {
            "securitySchemes": {api.security: {"type": "http", "scheme": "bearer"}},
            "schemas": schemas.components,
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


def _operation(operation: Operation, api: ApiDescription, schemas: Schemas) -> dict[str, Any]:
    path_names = [segment[1:-1] for segment in operation.path.split("/") if segment.startswith("{")]
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
    answer = {} if operation.answer is None else schemas.answer(operation.answer)
    problem = {MEDIA_TYPE: {"schema": PROBLEM}}
    operation_json: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "parameters": parameters,
        "responses": {
            str(status): {
                "description": "JSON." if operation.media == _JSON else "Server-sent events.",
                "content": {operation.media: {"schema": answer}},
            }
            for status in operation.successes
        }
        | {
            str(status): {"description": api.statuses[status], "content": problem}
            for status in operation.statuses
        },
    }
    if operation.secured:
        operation_json["security"] = [{api.security: []}]
    if operation.body is not None:
        operation_json["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schemas.body(operation.body)}},
        }
    return operation_json
