"""The OpenAPI 3.1 document that ingest serves at /openapi.json."""

from typing import Any, Final

import orjson

from hifi.record.cloudevents.attributes import BINARY_ATTRIBUTES
from hifi.runtime.health import version
from hifi.runtime.http.openapi import PROBLEM, Schemas
from hifi.runtime.http.problem import MEDIA_TYPE
from hifi_ingest.bodies import Accepted, CloudEvent, RefusalDetails

_SCHEMAS: Final = Schemas([CloudEvent, list[CloudEvent]], [Accepted], RefusalDetails)
_EXAMPLE: Final = {"flight": 1545, "carrier": "UA"}


def _error(description: str, *headers: str) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": description,
        "content": {MEDIA_TYPE: {"schema": PROBLEM}},
    }
    if headers:
        response["headers"] = {name: {"schema": {"type": "string"}} for name in headers}
    return response


_RESPONSES: Final = {
    "202": {
        "description": "Kafka has acknowledged every event of the request.",
        "content": {"application/json": {"schema": _SCHEMAS.answer(Accepted)}},
    },
    "400": _error(
        "The request or some of its events are invalid; no event was accepted. `events` lists the invalid ones."
    ),
    "401": _error("The write key is missing or unknown.", "WWW-Authenticate"),
    "403": _error("The write key is for pages of other origins."),
    "404": _error("The write key has no such pipe, or has several and the path names none."),
    "405": _error("Events are sent by POST.", "Allow"),
    "408": _error("The request was not received in time."),
    "411": _error(
        "The request has neither Content-Length nor Transfer-Encoding, so it has no body.", "Connection"
    ),
    "413": _error("The body, an event or the batch is too large; no event was accepted."),
    "415": _error(
        "The content type, charset or content coding is not supported.", "Accept", "Accept-Encoding"
    ),
    "422": _error("A field that the pipe declares is missing or has the wrong type; no event was accepted."),
    "429": _error(
        "The pipe has exceeded its rate, or ingest or a stage behind it is overloaded.", "Retry-After"
    ),
    "431": _error("The headers are too large."),
    "503": _error(
        "Kafka did not acknowledge every event in time. `events` gives the outcome of each event: accepted, refused"
        " or unknown. Without `events`, no event was accepted. With `paused`, somebody paused the pipe.",
        "Retry-After",
    ),
}

_ENCODING: Final = {
    "name": "Content-Encoding",
    "in": "header",
    "schema": {"type": "string", "enum": ["identity", "gzip", "zstd"]},
}
_CE_HEADERS: Final = [
    {
        "name": f"ce-{name}",
        "in": "header",
        "description": f"Binary mode: the attribute `{name}`, percent-encoded.",
        "schema": {"type": "string"},
    }
    for name in BINARY_ATTRIBUTES
]
_CLOUDEVENT_BODIES: Final = {
    "application/cloudevents+json": {"schema": _SCHEMAS.body(CloudEvent)},
    "application/cloudevents-batch+json": {"schema": _SCHEMAS.body(list[CloudEvent])},
}


def _operation(name: str, summary: str, bodies: dict[str, Any], parameters: list[Any]) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": summary,
        "parameters": [*parameters, _ENCODING, *_CE_HEADERS],
        "requestBody": {"required": True, "content": bodies},
        "responses": _RESPONSES,
    }


_HEALTH_PAGE: Final = {
    "description": "State of the service.",
    "content": {"application/json": {"schema": {"type": "object"}}},
}
_ANY_BODY: Final = {"*/*": {"schema": {}, "example": _EXAMPLE}}
_PLAIN_BODIES: Final = {
    "application/json": {
        "schema": {"oneOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}]},
        "example": _EXAMPLE,
    },
    "application/x-ndjson": {"schema": {"type": "string", "description": "One JSON object per line."}},
}
_PIPE: Final = {
    "name": "pipe",
    "in": "path",
    "required": True,
    "schema": {"type": "string", "pattern": "^[a-z][a-z0-9-]{0,62}$"},
}
_IDEMPOTENCY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "For plain JSON in pipes without a declared id: same key, index and content give the same event id.",
    "schema": {"type": "string", "maxLength": 200},
}

DOCUMENT: Final = orjson.dumps(
    {
        "openapi": "3.1.0",
        "info": {
            "title": "hifi ingest",
            "version": version("ingest"),
            "description": "Accepts events, and answers 202 only after Kafka has acknowledged them.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"bearer": []}, {"basic": []}],
        "paths": {
            "/v1/events": {
                "post": _operation(
                    "sendEvents",
                    "Send CloudEvents 1.0 in binary, structured or batched mode to the pipe of the write key.",
                    _CLOUDEVENT_BODIES | _ANY_BODY,
                    [],
                )
            },
            "/v1/pipes/{pipe}/events": {
                "post": _operation(
                    "sendEventsToPipe",
                    "Send plain JSON (object, array, lines) or CloudEvents to a named pipe.",
                    _PLAIN_BODIES | _CLOUDEVENT_BODIES | _ANY_BODY,
                    [_PIPE, _IDEMPOTENCY],
                )
            },
            "/healthz": {"get": {"summary": "Liveness.", "security": [], "responses": {"200": _HEALTH_PAGE}}},
            "/readyz": {
                "get": {
                    "summary": "Readiness; if not ready, what ingest is waiting for.",
                    "security": [],
                    "responses": {"200": _HEALTH_PAGE, "503": _HEALTH_PAGE},
                }
            },
        },
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "The write key."},
                "basic": {"type": "http", "scheme": "basic", "description": "The write key as user name."},
            },
            "schemas": _SCHEMAS.components,
        },
    }
)
