"""The OpenAPI 3.1 document of ingest, as it is served at /openapi.json."""

from typing import Any, Final

import orjson

from hifi.health import version

_PROBLEM: Final = {"$ref": "#/components/schemas/Problem"}
_EXAMPLE: Final = {"flight": 1545, "carrier": "UA"}


def _answer(description: str, *headers: str) -> dict[str, Any]:
    answer: dict[str, Any] = {
        "description": description,
        "content": {"application/problem+json": {"schema": _PROBLEM}},
    }
    if headers:
        answer["headers"] = {name: {"schema": {"type": "string"}} for name in headers}
    return answer


_ANSWERS: Final = {
    "202": {
        "description": "Kafka has acknowledged every event of the request.",
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Accepted"}}},
    },
    "400": _answer(
        "The request or some of its events are malformed; nothing was taken. `events` lists them."
    ),
    "401": _answer("The write key is missing or unknown.", "WWW-Authenticate"),
    "404": _answer("The write key opens no such pipe."),
    "405": _answer("Events come in by POST.", "Allow"),
    "408": _answer("The request did not come in time."),
    "413": _answer("The body, an event or the batch is too large; nothing was taken."),
    "415": _answer("The content type or content coding is not taken.", "Accept", "Accept-Encoding"),
    "422": _answer("What the pipe declares to take from an event is missing in it; nothing was taken."),
    "429": _answer("The pipe takes fewer events a second.", "Retry-After"),
    "431": _answer("The headers are too large."),
    "503": _answer(
        "Not every event was acknowledged in time. If `events` is there it says for each whether it was accepted,"
        " refused or is unknown; if not, nothing was taken.",
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
    for name in ("specversion", "id", "source", "type", "subject", "time", "dataschema", "partitionkey")
]
_CLOUDEVENT_BODIES: Final = {
    "application/cloudevents+json": {"schema": {"$ref": "#/components/schemas/CloudEvent"}},
    "application/cloudevents-batch+json": {
        "schema": {"type": "array", "items": {"$ref": "#/components/schemas/CloudEvent"}}
    },
}

_SCHEMAS: Final[dict[str, Any]] = {
    "CloudEvent": {
        "type": "object",
        "required": ["specversion", "id", "source", "type"],
        "properties": {
            "specversion": {"const": "1.0"},
            "id": {"type": "string", "minLength": 1},
            "source": {"type": "string", "format": "uri-reference", "minLength": 1},
            "type": {"type": "string", "minLength": 1},
            "subject": {"type": ["string", "null"], "minLength": 1},
            "time": {"type": ["string", "null"], "format": "date-time"},
            "datacontenttype": {"type": ["string", "null"]},
            "dataschema": {"type": ["string", "null"], "format": "uri"},
            "data": {},
            "data_base64": {"type": ["string", "null"], "contentEncoding": "base64"},
        },
        "additionalProperties": {"type": ["string", "boolean", "integer", "null"]},
    },
    "Accepted": {
        "type": "object",
        "required": ["accepted", "ids"],
        "properties": {
            "accepted": {"type": "integer", "minimum": 0},
            "ids": {
                "type": "array",
                "items": {"type": "string"},
                "description": "The id of each event, in the order of the request.",
            },
        },
    },
    "Problem": {
        "type": "object",
        "description": "Problem details (RFC 9457).",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {"type": "string", "format": "uri-reference"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "bad": {
                "type": "integer",
                "description": "How many events are refused; the first 100 are listed.",
            },
            "accepted": {"type": "integer"},
            "refused": {"type": "integer"},
            "unknown": {"type": "integer"},
            "events": {"type": "array", "items": {"$ref": "#/components/schemas/EventProblem"}},
        },
    },
    "EventProblem": {
        "type": "object",
        "required": ["index"],
        "properties": {
            "index": {"type": "integer", "description": "Place in the request, from 0."},
            "id": {"type": "string"},
            "detail": {"type": "string"},
            "pointer": {"type": "string", "description": "JSON pointer (RFC 6901) into the event."},
            "outcome": {"enum": ["accepted", "refused", "unknown"]},
        },
    },
}


def _operation(name: str, summary: str, bodies: dict[str, Any], parameters: list[Any]) -> dict[str, Any]:
    return {
        "operationId": name,
        "summary": summary,
        "parameters": [*parameters, _ENCODING, *_CE_HEADERS],
        "requestBody": {"required": True, "content": bodies},
        "responses": _ANSWERS,
    }


_PAGE: Final = {"description": "As it says.", "content": {"application/json": {"schema": {"type": "object"}}}}
_ANY_BODY: Final = {"*/*": {"schema": {}, "example": _EXAMPLE}}
_PLAIN_BODIES: Final = {
    "application/json": {
        "schema": {"oneOf": [{"type": "object"}, {"type": "array", "items": {"type": "object"}}]},
        "example": _EXAMPLE,
    },
    "application/x-ndjson": {"schema": {"type": "string", "description": "One JSON object a line."}},
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
    "description": "Plain JSON without a declared id: the same key, place and content give the same event id.",
    "schema": {"type": "string", "maxLength": 200},
}

DOCUMENT: Final = orjson.dumps(
    {
        "openapi": "3.1.0",
        "info": {
            "title": "hifi ingest",
            "version": version("ingest"),
            "description": "Takes events, and answers 202 only after Kafka has acknowledged them.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "security": [{"bearer": []}, {"basic": []}],
        "paths": {
            "/v1/events": {
                "post": _operation(
                    "sendEvents",
                    "CloudEvents 1.0 in binary, structured or batched mode; the write key names the pipe.",
                    _CLOUDEVENT_BODIES | _ANY_BODY,
                    [],
                )
            },
            "/v1/pipes/{pipe}/events": {
                "post": _operation(
                    "sendEventsToPipe",
                    "Plain JSON (object, array, lines) or CloudEvents, to a named pipe.",
                    _PLAIN_BODIES | _CLOUDEVENT_BODIES | _ANY_BODY,
                    [_PIPE, _IDEMPOTENCY],
                )
            },
            "/healthz": {"get": {"summary": "Alive.", "security": [], "responses": {"200": _PAGE}}},
            "/readyz": {
                "get": {
                    "summary": "Ready to take events; if not, what it waits for.",
                    "security": [],
                    "responses": {"200": _PAGE, "503": _PAGE},
                }
            },
        },
        "components": {
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer", "description": "The write key."},
                "basic": {"type": "http", "scheme": "basic", "description": "The write key as user name."},
            },
            "schemas": _SCHEMAS,
        },
    }
)
