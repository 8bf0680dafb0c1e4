"""The table of the API's operations, from which its routes and its OpenAPI document are built."""

from typing import Final

from hifi.control.verdict import Condition
from hifi.runtime.http.openapi import ApiDescription, Operation
from hifi_observe.alarms.alarm import KINDS
from hifi_observe.ledger.breaker_reports import CLOSED, HALF_OPEN, OPEN
from hifi_observe.live.breaker_state import UNKNOWN
from hifi_observe.skew.comparison import DRIFTED, STEADY, TOO_FEW
from hifi_observe.web.replays import ReplayRequest

API: Final = ApiDescription(
    "hifi observe",
    "Loss, lag and availability of every minute. Names of times end in their unit: `_us` microseconds, `_ms` "
    "milliseconds, `_s` seconds; minutes are counted from 1970 UTC.",
    {
        400: "The request is invalid.",
        401: "The operator token is missing or wrong.",
        404: "The pipe or minute was not found.",
        409: "Another replay is running.",
        503: "Kafka does not answer, or too many look-ups are running (then with `Retry-After`).",
    },
    {"pipe": "Name of the pipe.", "minute": "Minutes since 1970 UTC, or `2026-11-21T10:04` in UTC."},
    "operator",
)
_SILENCE: Final = {
    "type": "object",
    "required": ["reason", "seconds"],
    "properties": {
        "reason": {"type": "string"},
        "seconds": {"type": "number", "exclusiveMinimum": 0},
        "kind": {"enum": ["", *KINDS]},
        "pipe": {"type": "string"},
    },
}
_BREAKER: Final = {
    "type": "object",
    "description": "The circuit breaker, as reported by the newest receipts; see docs/observe.md.",
    "required": ["state", "since_ms", "answer", "seen_ms", "open_partitions", "partitions"],
    "properties": {
        "state": {
            "enum": [
                OPEN,
                HALF_OPEN,
                CLOSED,
                UNKNOWN,
            ]
        },
        "since_ms": {"type": ["integer", "null"], "description": "Time since when it has not been closed."},
        "answer": {
            "type": ["string", "null"],
            "description": "The newest failed response while it is not closed: a status or an error (`timeout`).",
        },
        "seen_ms": {
            "type": ["integer", "null"],
            "description": "Time of the last receipt that reported this state.",
        },
        "open_partitions": {
            "type": "integer",
            "description": "Number of partitions on which it is not closed.",
        },
        "partitions": {"type": "integer", "description": "Number of partitions with a report."},
    },
}
_PIPE: Final = {
    "type": "object",
    "required": ["pipe", "destinations"],
    "properties": {
        "pipe": {"type": "string"},
        "destinations": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["name", "host", "breaker"],
                "properties": {"name": {"type": "string"}, "host": {"type": "string"}, "breaker": _BREAKER},
            },
        },
    },
}
_SKEW: Final = {
    "type": "object",
    "required": ["pipe", "fields"],
    "properties": {
        "pipe": {"type": "string"},
        "fields": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["field", "state", "distance", "threshold", "window", "reference", "buckets"],
                "properties": {
                    "field": {"type": "string"},
                    "state": {"enum": [TOO_FEW, STEADY, DRIFTED]},
                    "distance": {
                        "type": ["number", "null"],
                        "description": "Jensen-Shannon distance, less what chance explains; null: too few events.",
                    },
                    "threshold": {
                        "type": "number",
                        "description": "Distance from which a field has drifted.",
                    },
                    "window": {"type": "object", "description": "First and last minute, and events."},
                    "reference": {"type": "object", "description": "Last minute, and events."},
                    "buckets": {
                        "type": "array",
                        "description": "Events, and their share of all events from 0 to 1, in both.",
                        "items": {"type": "object"},
                    },
                },
            },
        },
    },
}
_VERDICTS: Final = {
    "type": "object",
    "required": ["verdicts"],
    "properties": {
        "verdicts": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["scope", "condition", "since_us", "at_us", "reasons"],
                "properties": {
                    "scope": {"type": "string", "description": "`stream`, `service/NAME` or `pipe/NAME`."},
                    "condition": {"enum": [*Condition]},
                    "since_us": {"type": "integer"},
                    "at_us": {"type": "integer"},
                    "reasons": {"type": "array", "items": {"type": "string"}},
                },
            },
        }
    },
}
_ALARMS: Final = {
    "type": "object",
    "required": ["active", "past", "silences"],
    "properties": {
        "active": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["id", "kind", "runbook"],
                "properties": {
                    "id": {"type": "string"},
                    "kind": {"enum": [*KINDS]},
                    "runbook": {
                        "type": "string",
                        "format": "uri-reference",
                        "description": "Path of the runbook in the console, at the address of this API.",
                    },
                    "told": {
                        "type": "array",
                        "items": {"enum": ["webhook", "email"]},
                        "description": "The ways in which the owner of the pipe was told.",
                    },
                },
            },
        }
    },
}
OPERATIONS: Final = (
    Operation(
        "GET", "/api/v1/status", "status", "What this instance observes, and how far behind Kafka it is."
    ),
    Operation(
        "GET",
        "/api/v1/verdicts",
        "verdicts",
        "Whether the stream, each service and each pipe is stable, unstable (with reasons) or unknown, and since when.",
        result=_VERDICTS,
    ),
    Operation(
        "GET",
        "/api/v1/control",
        "control",
        "Verdicts, the figures of both revisions of each rollout that runs, and the newest steps of the control plane.",
    ),
    Operation(
        "GET",
        "/api/v1/pipes",
        "pipes",
        "All pipes: overall verdict, totals, and state, rates, lag, loss and nines of each pipe.",
    ),
    Operation(
        "GET",
        "/api/v1/pipes/{pipe}",
        "pipe",
        "Current state of one pipe: rates, lags, hops, destinations with their circuit breakers, availability.",
        statuses=(404,),
        result=_PIPE,
    ),
    Operation(
        "GET",
        "/api/v1/pipes/{pipe}/minutes",
        "minutes",
        "Minutes of a pipe, oldest first, closed and provisional (still open).",
        {
            "last": "Number of minutes before now; default 60.",
            "from": "First minute.",
            "to": "Last minute.",
            "lags": "`whole`: `lag_sketch` has the distribution of lags, if the stream has colours.",
        },
        (400, 404),
    ),
    Operation(
        "GET",
        "/api/v1/pipes/{pipe}/colours",
        "colours",
        "Closed minutes of a pipe over both colours, oldest first, with the share of each and what the front refused. "
        "`missing` names the colours of which a minute is not known, and `front` if it was not watched all the time.",
        {"last": "Number of minutes before now; default 60."},
        (400, 404),
    ),
    Operation(
        "GET",
        "/api/v1/pipes/{pipe}/series",
        "series",
        "Minutes of a pipe as columns, for charts; open minutes have the state `provisional`.",
        {"last": "Number of minutes before now; default 60."},
        (400, 404),
    ),
    Operation(
        "GET",
        "/api/v1/pipes/{pipe}/recent",
        "recent",
        "The last five minutes of a pipe as columns, one point per second.",
        statuses=(404,),
    ),
    Operation(
        "GET",
        "/api/v1/pipes/{pipe}/skew",
        "skew",
        "The distribution of each watched field in the last minutes and before, and whether it has drifted.",
        statuses=(404,),
        result=_SKEW,
    ),
    Operation(
        "GET", "/api/v1/pipes/{pipe}/minutes/{minute}", "minute", "One closed minute.", statuses=(400, 404)
    ),
    Operation(
        "GET",
        "/api/v1/pipes/{pipe}/minutes/{minute}/lost",
        "lost",
        "Each lost event of a minute, with its `ce_id` if a topic still has it.",
        {"limit": "Maximum number of events; default 1000.", "resolve": "`no`: do not look up the `ce_id`."},
        (400, 404, 503),
    ),
    Operation(
        "GET",
        "/api/v1/pipes/{pipe}/dead",
        "dead",
        "The newest dead letters of a pipe.",
        {
            "limit": "Maximum number of dead letters; default 100.",
            "service": "Only dead letters from this service.",
            "reason": "Only dead letters with this reason.",
            "destination": "Only dead letters for this destination.",
        },
        (400, 404, 503),
    ),
    Operation(
        "POST",
        "/api/v1/pipes/{pipe}/dead/replay",
        "replay",
        "Replay dead letters. Those replayed before are skipped, so repeating a request is harmless.",
        statuses=(400, 401, 404, 409, 503),
        secured=True,
        body=ReplayRequest.model_json_schema(),
    ),
    Operation(
        "GET",
        "/api/v1/alarms",
        "alarms",
        "Active alarms, recent past alarms, and silences.",
        result=_ALARMS,
    ),
    Operation(
        "POST",
        "/api/v1/silences",
        "silence",
        "Silence alarms during a planned change.",
        statuses=(400, 401),
        secured=True,
        body=_SILENCE,
    ),
)
