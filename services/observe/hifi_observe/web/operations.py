"""The operations of the API, as its document and its routes have them."""

from typing import Final

from hifi_observe.alarms.alarm import KINDS
from hifi_observe.ledger.breaker_reports import CLOSED, HALF_OPEN, OPEN
from hifi_observe.live.breaker_state import UNKNOWN
from hifi_observe.web.openapi import Operation
from hifi_observe.web.replays import Order

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
    "description": "The circuit breaker, as the newest receipts tell it; see docs/observe.md.",
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
        "since_ms": {"type": ["integer", "null"], "description": "Since when it is not closed."},
        "answer": {
            "type": ["string", "null"],
            "description": "The newest failing answer while it is not closed: a status, or `timeout` and the like.",
        },
        "seen_ms": {"type": ["integer", "null"], "description": "When a receipt last told it."},
        "open_partitions": {"type": "integer", "description": "Partition numbers on which it is not closed."},
        "partitions": {"type": "integer", "description": "Partition numbers that told anything."},
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
                        "description": "What to do: a path of the console, which has the address of this API.",
                    },
                },
            },
        }
    },
}
OPERATIONS: Final = (
    Operation("GET", "/api/v1/status", "status", "What this instance observes and how old its knowledge is."),
    Operation(
        "GET",
        "/api/v1/pipes",
        "pipes",
        "All pipes: whether everything is all right, totals, and for each pipe state, rates, lag, loss and nines.",
    ),
    Operation(
        "GET",
        "/api/v1/pipes/{pipe}",
        "pipe",
        "One pipe now: rates, lags, hops, destinations with their circuit breakers, availability.",
        statuses=(404,),
        result=_PIPE,
    ),
    Operation(
        "GET",
        "/api/v1/pipes/{pipe}/minutes",
        "minutes",
        "Minutes of a pipe, oldest first: closed ones, and open ones as provisional.",
        {"last": "How many minutes before now; default 60.", "from": "First minute.", "to": "Last minute."},
        (400, 404),
    ),
    Operation(
        "GET",
        "/api/v1/pipes/{pipe}/series",
        "series",
        "Minutes of a pipe as columns, for charts; those that are still open have the state `provisional`.",
        {"last": "How many minutes before now; default 60."},
        (400, 404),
    ),
    Operation(
        "GET",
        "/api/v1/pipes/{pipe}/recent",
        "recent",
        "The last five minutes of a pipe as columns, one point a second.",
        statuses=(404,),
    ),
    Operation(
        "GET", "/api/v1/pipes/{pipe}/minutes/{minute}", "minute", "One closed minute.", statuses=(400, 404)
    ),
    Operation(
        "GET",
        "/api/v1/pipes/{pipe}/minutes/{minute}/lost",
        "lost",
        "The lost events of a minute, one by one, with their `ce_id` where it can be found.",
        {"limit": "How many at most; default 1000.", "resolve": "`no`: do not look the `ce_id` up."},
        (400, 404, 503),
    ),
    Operation(
        "GET",
        "/api/v1/pipes/{pipe}/dead",
        "dead",
        "The newest dead letters of a pipe.",
        {
            "limit": "How many at most; default 100.",
            "service": "Only of this service.",
            "reason": "Only with this reason.",
            "destination": "Only for this one.",
        },
        (400, 404, 503),
    ),
    Operation(
        "POST",
        "/api/v1/pipes/{pipe}/dead/replay",
        "replay",
        "Let dead letters go again; those that were replayed before are left out, so repeating it is harmless.",
        statuses=(400, 401, 404, 409, 503),
        operator=True,
        body=Order.model_json_schema(),
    ),
    Operation(
        "GET",
        "/api/v1/alarms",
        "alarms",
        "Active alarms, the newest of the past, and silences.",
        result=_ALARMS,
    ),
    Operation(
        "POST",
        "/api/v1/silences",
        "silence",
        "Keep alarms quiet during a planned change.",
        statuses=(400, 401),
        operator=True,
        body=_SILENCE,
    ),
)
