"""The table of the API's operations, from which its routes and its OpenAPI document are built."""

from collections.abc import Mapping
from typing import Any, Final

from hifi.control.principals.gate import Needs
from hifi.control.principals.principal import PrincipalJson, Role
from hifi.control.principals.sign_in import LinkJson
from hifi.control.request import RequestKind
from hifi.pipe.model import Pipe
from hifi.runtime.http.openapi import ApiDescription, Operation
from hifi_manage.web.views import (
    AuditEntries,
    KeyList,
    KeyRequest,
    NewKey,
    PipeList,
    PipeRollout,
    PipeView,
    PrincipalList,
    ProblemList,
    RotationRequest,
    TrialRequest,
    TrialView,
    VersionList,
    VersionWithBody,
)

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
        "key": "Id of a write key.",
        "kind": "One of " + ", ".join(f"`{kind.value}`" for kind in RequestKind) + ".",
    },
    "principal",
)
PIPE_SCHEMA: Final = Pipe.model_json_schema(by_alias=True)
"""The JSON Schema with which an editor checks and completes the text of a pipe."""
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
    answer: Any,
    statuses: tuple[int, ...],
    body: Any = None,
    parameters: dict[str, str] | None = None,
    successes: tuple[int, ...] = (200,),
) -> Operation:
    return Operation(
        method, f"/api/v1{path}", name, summary, parameters or {}, statuses, True, body, answer, successes
    )


OPERATIONS: Final = (
    _operation(
        "GET",
        "/pipes",
        "pipes",
        "List pipes: declared, in force, and the state of their rollouts.",
        PipeList,
        (401, 403, 503),
    ),
    _operation("GET", "/pipes/{pipe}", "pipe", "Get a pipe, with its ETag.", PipeView, _READ),
    _operation(
        "PUT",
        "/pipes/{pipe}",
        "declare",
        "Declare or change a pipe, in YAML or JSON.",
        PipeView,
        (*_WRITE, 413, 422),
        Pipe,
        _CHANGE,
        (200, 201),
    ),
    _operation(
        "DELETE",
        "/pipes/{pipe}",
        "delete",
        "Declare that a pipe is to be deleted.",
        PipeView,
        _WRITE,
        None,
        _CHANGE,
    ),
    _operation(
        "POST",
        "/pipes/{pipe}/pause",
        "pause",
        "Pause a pipe: it takes no new events, and delivers what it accepted.",
        PipeView,
        (400, 401, 403, 404, 409, 412, 428, 503),
    ),
    _operation(
        "POST",
        "/pipes/{pipe}/resume",
        "resume",
        "Let a paused pipe take events again.",
        PipeView,
        (400, 401, 403, 404, 409, 412, 428, 503),
    ),
    _operation(
        "GET",
        "/pipes/{pipe}/versions",
        "versions",
        "List the newest versions of a pipe, newest first.",
        VersionList,
        _READ,
    ),
    _operation(
        "GET",
        "/pipes/{pipe}/versions/{number}",
        "version",
        "Get a version of a pipe.",
        VersionWithBody,
        _READ,
    ),
    _operation(
        "POST",
        "/pipes/{pipe}/versions/{number}/declare",
        "roll_back",
        "Declare an earlier version again.",
        PipeView,
        (*_WRITE, 422),
        None,
        _CHANGE,
    ),
    _operation(
        "POST",
        "/check",
        "check",
        "Check a pipe without saving it, as `hifi check --quick` does.",
        ProblemList,
        (401, 403, 413, 503),
        Pipe,
    ),
    _operation(
        "POST",
        "/try",
        "trial",
        "Show what becomes of a test event, before a pipe is published. Sends nothing.",
        TrialView,
        (400, 401, 403, 413, 422, 503),
        TrialRequest,
    ),
    _operation(
        "POST",
        "/pipes/{pipe}/rollout/{kind}",
        "rollout",
        "Pause, resume, abort or force the rollout of a pipe. `force` needs `If-Match`, which the others may have.",
        PipeRollout,
        (400, 401, 403, 404, 409, 412, 428, 503),
    ),
    _operation(
        "GET",
        "/pipes/{pipe}/keys",
        "keys",
        "List the write keys of a pipe that were issued, without the keys.",
        KeyList,
        _READ,
    ),
    _operation(
        "POST",
        "/pipes/{pipe}/keys",
        "issue_key",
        "Issue a write key of a pipe. Only its hash is stored.",
        NewKey,
        (400, 401, 403, 404, 409, 413, 503),
        KeyRequest,
        successes=(201,),
    ),
    _operation(
        "POST",
        "/pipes/{pipe}/keys/{key}/rotate",
        "rotate_key",
        "Issue a write key for the same origins; the one before expires after the overlap.",
        NewKey,
        (400, 401, 403, 404, 409, 413, 503),
        RotationRequest,
        successes=(201,),
    ),
    _operation(
        "DELETE",
        "/pipes/{pipe}/keys/{key}",
        "revoke_key",
        "Revoke a write key: ingest refuses it within seconds.",
        KeyList,
        (401, 403, 404, 409, 503),
    ),
    _operation("GET", "/me", "me", "Get the principal of the token.", PrincipalJson, (401, 503)),
    _operation(
        "POST",
        "/sign-in-links",
        "link",
        "Make a link that opens the console signed in as the caller, once and within an hour.",
        LinkJson,
        (401, 403, 503),
    ),
    _operation(
        "GET",
        "/principals",
        "principals",
        "List the principals, without their tokens, and the people who were revoked.",
        PrincipalList,
        (401, 403, 503),
    ),
    _operation(
        "GET",
        "/audit",
        "audit",
        "List the newest entries of the audit, newest first.",
        AuditEntries,
        (401, 403, 503),
    ),
)
NEEDS: Final[Mapping[str, Needs]] = {
    "pipes": Needs(Role.VIEWER),
    "pipe": Needs(Role.VIEWER),
    "versions": Needs(Role.VIEWER),
    "version": Needs(Role.VIEWER),
    "check": Needs(Role.ADMIN),
    "rollout": Needs(Role.OPERATOR),
    "pause": Needs(Role.OPERATOR),
    "resume": Needs(Role.OPERATOR),
    "declare": Needs(Role.ADMIN),
    "delete": Needs(Role.ADMIN),
    "roll_back": Needs(Role.ADMIN),
    "trial": Needs(Role.ADMIN),
    "keys": Needs(Role.VIEWER),
    "issue_key": Needs(Role.ADMIN),
    "rotate_key": Needs(Role.ADMIN),
    "revoke_key": Needs(Role.ADMIN),
    "me": Needs(Role.VIEWER),
    "link": Needs(Role.VIEWER),
    "principals": Needs(Role.ADMIN),
    "audit": Needs(Role.VIEWER),
    "openapi": Needs(Role.VIEWER),
}
"""Name of a route of the API to what it needs."""
