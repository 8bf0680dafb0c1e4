"""The table of the API's operations, from which its routes and its OpenAPI document are built."""

from collections.abc import Mapping
from typing import Any, Final

from hifi.control.principals.gate import Needs
from hifi.control.principals.principal import PrincipalJson, Role
from hifi.control.principals.sign_in import LinkJson
from hifi.runtime.http.openapi import ApiDescription, Operation
from hifi_observe.alarms.alarm import AlarmSilence
from hifi_observe.colours.colours_history import HistoryJson
from hifi_observe.reports.report import SignedReportJson
from hifi_observe.web.alarm_answers import AlarmList, SilenceRequest
from hifi_observe.web.control_answers import Control, VerdictList
from hifi_observe.web.pipe_answers import Overview, PipeNow, WatchedFields
from hifi_observe.web.replays import ReplayRequest, ReplayResult
from hifi_observe.web.usage_answers import UsageList
from hifi_observe.web.watermark_answers import WatermarkList

API: Final = ApiDescription(
    "hifi observe",
    "Loss, lag and availability of every minute. Names of times end in their unit: `_us` microseconds, `_ms` "
    "milliseconds, `_s` seconds; minutes are counted from 1970 UTC.",
    {
        400: "The request is invalid.",
        401: "The token is missing, unknown, revoked or expired.",
        403: "The principal may not do this.",
        404: "The pipe or minute was not found.",
        409: "Another replay is running.",
        503: "Kafka does not answer, too many look-ups are running, or the principals or the audit are not available.",
    },
    {"pipe": "Name of the pipe.", "minute": "Minutes since 1970 UTC, or `2026-11-21T10:04` in UTC."},
    "principal",
)
_REFUSED: Final = (401, 403, 503)


def _operation(
    method: str,
    path: str,
    name: str,
    summary: str,
    parameters: dict[str, str] | None = None,
    statuses: tuple[int, ...] = (),
    body: Any = None,
    answer: Any = None,
) -> Operation:
    return Operation(
        method, path, name, summary, parameters or {}, (*statuses, *_REFUSED), True, body, answer
    )


OPERATIONS: Final = (
    _operation(
        "GET", "/api/v1/status", "status", "What this instance observes, and how far behind Kafka it is."
    ),
    _operation(
        "GET",
        "/api/v1/verdicts",
        "verdicts",
        "Whether the stream, each service and each pipe is stable, unstable (with reasons) or unknown, and since when.",
        answer=VerdictList,
    ),
    _operation(
        "GET",
        "/api/v1/control",
        "control",
        "Verdicts, the figures of both revisions of each rollout that runs, and the control plane's newest actions.",
        answer=Control,
    ),
    _operation(
        "GET",
        "/api/v1/pipes",
        "pipes",
        "All pipes: overall verdict, totals, and state, rates, lag, loss and nines of each pipe.",
        answer=Overview,
    ),
    _operation(
        "GET",
        "/api/v1/pipes/{pipe}",
        "pipe",
        "Current state of one pipe: rates, lags, hops, destinations with their circuit breakers, availability.",
        statuses=(404,),
        answer=PipeNow,
    ),
    _operation(
        "GET",
        "/api/v1/pipes/{pipe}/minutes",
        "minutes",
        "Minutes of a pipe since it was declared, oldest first, closed and provisional (still open). `first_minute` is "
        "the minute in which it was declared, until that is closed, then 0.",
        {
            "last": "Number of minutes before now; default 60.",
            "from": "First minute.",
            "to": "Last minute.",
            "lags": "`whole`: `lag_sketch` has the distribution of lags, if the stream has colours.",
        },
        (400, 404),
    ),
    _operation(
        "GET",
        "/api/v1/pipes/{pipe}/colours",
        "colours",
        "Closed minutes of a pipe over both colours, oldest first, with the share of each and what the front refused. "
        "`missing` names the colours of which a minute is not known, and `front` if it was not watched all the time.",
        {"last": "Number of minutes before now; default 60."},
        (400, 404),
    ),
    _operation(
        "GET",
        "/api/v1/pipes/{pipe}/colours/history",
        "history",
        "What this observe keeps of both colours, for the observe of the other: judgements of minutes, counts and ids.",
        {
            "from": "First day, numbered since 1970 UTC; default a month before `to`.",
            "to": "Last day; default today.",
        },
        (400, 404),
        answer=HistoryJson,
    ),
    _operation(
        "GET",
        "/api/v1/pipes/{pipe}/series",
        "series",
        "Minutes of a pipe as columns, for charts; open minutes have the state `provisional`.",
        {"last": "Number of minutes before now; default 60."},
        (400, 404),
    ),
    _operation(
        "GET",
        "/api/v1/pipes/{pipe}/recent",
        "recent",
        "The last five minutes of a pipe as columns, one point per second.",
        statuses=(404,),
    ),
    _operation(
        "GET",
        "/api/v1/pipes/{pipe}/skew",
        "skew",
        "The distribution of each watched field in the last minutes and before, and whether it has drifted.",
        statuses=(404,),
        answer=WatchedFields,
    ),
    _operation(
        "GET", "/api/v1/pipes/{pipe}/minutes/{minute}", "minute", "One closed minute.", statuses=(400, 404)
    ),
    _operation(
        "GET",
        "/api/v1/pipes/{pipe}/minutes/{minute}/lost",
        "lost",
        "Each lost event of a minute, with its `ce_id` if a topic still has it.",
        {"limit": "Maximum number of events; default 1000.", "resolve": "`no`: do not look up the `ce_id`."},
        (400, 404),
    ),
    _operation(
        "GET",
        "/api/v1/pipes/{pipe}/minutes/{minute}/event",
        "event",
        "What became of an event: the destinations that wanted it, those that did not, and each outcome. "
        "`provisional`: so far, as its minute is still open.",
        {"id": "Its `ce_id`."},
        (400, 404, 503),
    ),
    _operation(
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
        (400, 404),
    ),
    _operation(
        "POST",
        "/api/v1/pipes/{pipe}/dead/replay",
        "replay",
        "Replay dead letters. Those replayed before are skipped, so repeating a request is harmless.",
        statuses=(400, 404, 409),
        body=ReplayRequest,
        answer=ReplayResult,
    ),
    _operation(
        "GET",
        "/api/v1/alarms",
        "alarms",
        "Active alarms, recent past alarms, and silences.",
        answer=AlarmList,
    ),
    _operation(
        "POST",
        "/api/v1/silences",
        "silence",
        "Silence alarms during a planned change.",
        statuses=(400,),
        body=SilenceRequest,
        answer=AlarmSilence,
    ),
    _operation(
        "GET",
        "/api/v1/usage",
        "usage",
        "Events, their bytes and deliveries by day (UTC) and pipe, with the events and bytes of each write key.",
        {
            "from": "First day, such as 2026-11-01; default 30 days ago.",
            "to": "Last day; default today.",
            "pipe": "Only this pipe.",
        },
        (400,),
        answer=UsageList,
    ),
    _operation(
        "GET",
        "/api/v1/watermarks",
        "watermarks",
        "Until when all events of each pipe have their outcome at each destination, and what is open. With "
        "`Accept: text/event-stream` the same each second, as server-sent events, for a minute.",
        {"colour": "`own`: what this observe states, if the stream has colours; default: of both."},
        (400,),
        answer=WatermarkList,
    ),
    _operation(
        "GET",
        "/api/v1/watermarks/{pipe}",
        "pipe_watermarks",
        "The watermarks of one pipe; also as server-sent events.",
        {"colour": "`own`: what this observe states, if the stream has colours; default: of both."},
        (400, 404),
        answer=WatermarkList,
    ),
    _operation(
        "GET",
        "/api/v1/report",
        "report",
        "The availability of a month, signed with Ed25519. The answer is the canonical JSON (RFC 8785) of the report "
        "and its signature, which is that of the canonical JSON of `report`.",
        {
            "month": "Such as `2026-10`, in UTC; default: the last that has ended.",
            "pipe": "Only this pipe.",
            "owner": "Only pipes of this owner: the e-mail address, the webhook, or its host.",
        },
        (400, 404),
        answer=SignedReportJson,
    ),
    _operation("GET", "/api/v1/me", "me", "The principal of the request.", answer=PrincipalJson),
    _operation(
        "POST",
        "/api/v1/sign-in-links",
        "link",
        "Make a link that opens the console signed in as the caller, once and within an hour.",
        answer=LinkJson,
    ),
)
_READS: Final = Needs(Role.VIEWER, fresh=False)
"""While the principals cannot be read, those who could read the figures still can."""
NEEDS: Final[Mapping[str, Needs]] = {
    "status": _READS,
    "verdicts": _READS,
    "control": _READS,
    "pipes": _READS,
    "pipe": _READS,
    "minutes": _READS,
    "colours": _READS,
    "history": _READS,
    "series": _READS,
    "recent": _READS,
    "skew": _READS,
    "minute": _READS,
    "lost": _READS,
    "event": _READS,
    "dead": _READS,
    "replay": Needs(Role.OPERATOR),
    "alarms": _READS,
    "silence": Needs(Role.OPERATOR),
    "usage": _READS,
    "watermarks": _READS,
    "pipe_watermarks": _READS,
    "report": _READS,
    "me": _READS,
    "link": Needs(Role.VIEWER),
    "openapi": _READS,
    "console_overview": _READS,
    "console_alarms": _READS,
    "console_control": _READS,
    "console_runbooks": _READS,
    "console_pipe": _READS,
    "console_colours": _READS,
    "console_dead": _READS,
    "console_minute": _READS,
    "console_report": _READS,
    "console_report_document": _READS,
}
"""Name of a route to what it needs. Data of dead letters needs a data viewer, too."""
