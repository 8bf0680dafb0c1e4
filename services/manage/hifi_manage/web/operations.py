"""The table of the API's operations, from which its routes and its OpenAPI document are built."""

from collections.abc import Mapping
from typing import Any, Final

from hifi.control.declaration import DeclaredState, Origin
from hifi.control.principals.audit import AuditOutcome
from hifi.control.principals.principal import Role
from hifi.control.request import RequestKind
from hifi.control.rollout_status import RolloutState
from hifi.delivery.destination_state import DestinationState
from hifi.pipe.model import Pipe
from hifi.runtime.http.openapi import ApiDescription, Operation

API: Final = ApiDescription(
    "hifi manage",
    "Declare, change, pause, roll back and delete pipes. A pipe's ETag is the number of its newest declaration; a "
    "change names it in `If-Match`. Names of times end in their unit: `_us` microseconds since 1970 UTC.",
    {
        400: "The request is invalid.",
        401: "The token is missing, unknown, revoked or expired.",
        403: "The principal may not do this.",
        404: "The pipe or version was not found.",
        409: "The pipe was declared by file, or it has no rollout that could do this.",
        412: "Somebody else changed the pipe meanwhile: `author` and `at_us` say who and when.",
        413: "The body is too large.",
        422: "The pipe has problems, which are in `problems`.",
        428: "`If-Match` or `If-None-Match` is missing.",
        503: "Kafka does not answer.",
    },
    {
        "pipe": "Name of the pipe.",
        "number": "Number of a declaration.",
        "kind": "One of " + ", ".join(f"`{kind.value}`" for kind in RequestKind) + ".",
    },
    "principal",
)
_NUMBER: Final = {"type": "integer", "description": "Number of the declaration."}
_VERSION_FIELDS: Final = {
    "number": _NUMBER,
    "author": {"type": "string"},
    "at_us": {"type": "integer"},
    "origin": {"enum": [origin.value for origin in Origin]},
    "state": {"enum": [state.value for state in DeclaredState]},
    "deleted": {"type": "boolean"},
}
_ROLLOUT: Final = {
    "type": ["object", "null"],
    "properties": {
        "declaration": _NUMBER,
        "state": {"enum": [state.value for state in RolloutState]},
        "revision": {"type": ["integer", "null"]},
        "share": {"type": "integer", "description": "Share of the keys, in 1/10,000."},
        "reason": {"type": "string"},
        "since_us": {"type": "integer"},
    },
}
_PIPE: Final = {
    "type": "object",
    "required": ["pipe", "owner", "declared", "in_force", "rollout"],
    "properties": {
        "pipe": {"type": "string"},
        "owner": {
            "type": ["object", "null"],
            "properties": {"webhook": {"type": ["string", "null"]}, "email": {"type": ["string", "null"]}},
        },
        "declared": {
            "type": ["object", "null"],
            "properties": {
                **_VERSION_FIELDS,
                "body": {"description": "The pipe as declared; in lists it is left out."},
                "yaml": {"type": "string", "description": "The same as YAML."},
            },
        },
        "in_force": {
            "type": ["object", "null"],
            "properties": {
                "revision": {"type": "integer"},
                "paused": {"type": "boolean", "description": "Whether it takes no new events."},
                "cap_per_s": {
                    "type": ["number", "null"],
                    "description": "Events per second that a new pipe may take in its present phase.",
                },
                "body": {"description": "The revision in force; in lists it is left out."},
                "yaml": {"type": "string", "description": "The same as YAML."},
            },
        },
        "rollout": _ROLLOUT,
        "destinations": {
            "type": "array",
            "description": "Those in force, with the last change of their state; in lists it is left out.",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "state": {"enum": [state.value for state in DestinationState]},
                    "by": {"type": ["string", "null"], "description": "`egest` or `operator`."},
                    "reason": {"type": "string"},
                    "since_us": {"type": ["integer", "null"]},
                },
            },
        },
    },
}
_PROBLEMS: Final = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["line", "column", "where", "message"],
        "properties": {
            "line": {"type": "integer"},
            "column": {"type": "integer"},
            "where": {"type": "string"},
            "message": {"type": "string"},
        },
    },
}
PIPE_SCHEMA: Final = Pipe.model_json_schema(by_alias=True)
_PRINCIPAL: Final = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "role": {"enum": [role.value for role in Role]},
        "pipes": {"type": "array", "items": {"type": "string"}, "description": "Empty: the whole stream."},
        "expires_us": {"type": ["integer", "null"]},
        "author": {"type": "string"},
        "at_us": {"type": "integer"},
    },
}
_AUDIT_ENTRY: Final = {
    "type": "object",
    "properties": {
        "principal": {"type": "string"},
        "what": {"type": "string"},
        "subject": {"type": "string"},
        "at_us": {"type": "integer"},
        "before": {"description": "Number of the declaration before; of a principal, the principal."},
        "after": {"description": "The same after the change."},
        "take_over": {"type": "boolean"},
        "outcome": {"enum": [outcome.value for outcome in AuditOutcome]},
        "reason": {"type": "string"},
        "id": {"type": "string"},
    },
}
_TRIAL: Final = {
    "type": "object",
    "properties": {
        "data": {"type": ["string", "null"], "description": "After normalize; null: the event is refused."},
        "refused": {
            "type": ["object", "null"],
            "properties": {
                "reason": {"type": "string"},
                "detail": {"type": "string"},
                "pointer": {"type": "string"},
            },
        },
        "deliveries": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "destination": {"type": "string"},
                    "request": {"type": ["string", "null"], "description": "Head and body, without secrets."},
                    "reason": {"type": "string", "description": "Why there is no request."},
                },
            },
        },
        "not_evaluated": {"type": "array", "items": {"type": "string"}},
    },
}
_CHANGE: Final = {
    "origin": "`file`: the change comes from a file, as of `hifi apply`; default `api`.",
    "take_over": "`true`: change a pipe that was declared by file; its file no longer says what is in force.",
}
_READ: Final = (401, 403, 404, 503)
_WRITE: Final = (400, 401, 403, 404, 409, 412, 428, 503)


def _operation(
    method: str,
    path: str,
    name: str,
    summary: str,
    result: dict[str, Any],
    statuses: tuple[int, ...],
    body: dict[str, Any] | None = None,
    parameters: dict[str, str] | None = None,
) -> Operation:
    return Operation(method, f"/api/v1{path}", name, summary, parameters or {}, statuses, True, body, result)


OPERATIONS: Final = (
    _operation(
        "GET",
        "/pipes",
        "pipes",
        "List pipes: declared, in force, and the state of their rollouts.",
        {"type": "object", "properties": {"pipes": {"type": "array", "items": _PIPE}}},
        (401, 403, 503),
    ),
    _operation("GET", "/pipes/{pipe}", "pipe", "Get a pipe, with its ETag.", _PIPE, _READ),
    _operation(
        "PUT",
        "/pipes/{pipe}",
        "declare",
        "Declare or change a pipe, in YAML or JSON.",
        _PIPE,
        (*_WRITE, 413, 422),
        PIPE_SCHEMA,
        _CHANGE,
    ),
    _operation(
        "DELETE",
        "/pipes/{pipe}",
        "delete",
        "Declare that a pipe is to be deleted.",
        _PIPE,
        _WRITE,
        None,
        _CHANGE,
    ),
    _operation(
        "POST",
        "/pipes/{pipe}/pause",
        "pause",
        "Pause a pipe: it takes no new events, and delivers what it accepted.",
        _PIPE,
        (400, 401, 403, 404, 412, 428, 503),
    ),
    _operation(
        "POST",
        "/pipes/{pipe}/resume",
        "resume",
        "Let a paused pipe take events again.",
        _PIPE,
        (400, 401, 403, 404, 412, 428, 503),
    ),
    _operation(
        "GET",
        "/pipes/{pipe}/versions",
        "versions",
        "List the newest versions of a pipe, newest first.",
        {
            "type": "object",
            "properties": {
                "versions": {"type": "array", "items": {"type": "object", "properties": _VERSION_FIELDS}}
            },
        },
        _READ,
    ),
    _operation(
        "GET",
        "/pipes/{pipe}/versions/{number}",
        "version",
        "Get a version of a pipe.",
        {
            "type": "object",
            "properties": {
                **_VERSION_FIELDS,
                "body": {},
                "yaml": {"type": "string"},
                "changes": {
                    "type": ["string", "null"],
                    "description": "Unified diff from the version that it replaced; null: that is no longer kept.",
                },
            },
        },
        _READ,
    ),
    _operation(
        "POST",
        "/pipes/{pipe}/versions/{number}/declare",
        "roll_back",
        "Declare an earlier version again.",
        _PIPE,
        (*_WRITE, 422),
        None,
        _CHANGE,
    ),
    _operation(
        "POST",
        "/check",
        "check",
        "Check a pipe without saving it, as `hifi check --quick` does.",
        {"type": "object", "properties": {"problems": _PROBLEMS}},
        (401, 403, 413, 503),
        PIPE_SCHEMA,
    ),
    _operation(
        "POST",
        "/try",
        "trial",
        "Show what becomes of a test event, before a pipe is published. Sends nothing.",
        _TRIAL,
        (400, 401, 403, 413, 422, 503),
        {
            "type": "object",
            "required": ["pipe", "event"],
            "properties": {
                "pipe": {"type": "string", "description": "The pipe in YAML."},
                "event": {"description": "Data of the event."},
            },
        },
    ),
    _operation(
        "POST",
        "/pipes/{pipe}/rollout/{kind}",
        "rollout",
        "Pause, resume, abort or force the rollout of a pipe.",
        {"type": "object", "properties": {"pipe": {"type": "string"}, "rollout": _ROLLOUT}},
        (400, 401, 403, 404, 409, 503),
    ),
    _operation("GET", "/me", "me", "Get the principal of the token.", _PRINCIPAL, (401, 503)),
    _operation(
        "GET",
        "/principals",
        "principals",
        "List the principals, without their tokens.",
        {"type": "object", "properties": {"principals": {"type": "array", "items": _PRINCIPAL}}},
        (401, 403, 503),
    ),
    _operation(
        "GET",
        "/audit",
        "audit",
        "List the newest entries of the audit, newest first.",
        {"type": "object", "properties": {"entries": {"type": "array", "items": _AUDIT_ENTRY}}},
        (401, 403, 503),
    ),
)
ROLES: Final[Mapping[str, Role]] = {
    "pipes": Role.VIEWER,
    "pipe": Role.VIEWER,
    "versions": Role.VIEWER,
    "version": Role.VIEWER,
    "check": Role.ADMIN,
    "rollout": Role.OPERATOR,
    "pause": Role.OPERATOR,
    "resume": Role.OPERATOR,
    "declare": Role.ADMIN,
    "delete": Role.ADMIN,
    "roll_back": Role.ADMIN,
    "trial": Role.ADMIN,
    "me": Role.VIEWER,
    "principals": Role.ADMIN,
    "audit": Role.VIEWER,
}
"""Name of an operation to the role that it needs."""
