"""The web console: pages rendered on the server, charts by plotly.js from its wheel; no third-party requests."""

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Route

from hifi.control.principals.principal import Principal, Role
from hifi.control.principals.sign_in import Handler, SignIn
from hifi.record.step_account import FOLDED
from hifi.runtime.console.console_pages import ConsolePages, navigation
from hifi.runtime.http.problem import Problem
from hifi.runtime.signed_document import ALGORITHM, SIGNATURE
from hifi_observe.alarms import runbooks
from hifi_observe.alarms.alarm import KINDS
from hifi_observe.live.breaker_state import BreakerView
from hifi_observe.minutes.open_minute import PROVISIONAL
from hifi_observe.reports.report import ReportJson, reasons_text
from hifi_observe.steps.partition_account import StepFindingJson
from hifi_observe.web.answers import Answers
from hifi_observe.web.event_data import EventDataReaders
from hifi_observe.web.operations import NEEDS
from hifi_observe.web.request import report_parameters

_API: Final = "/openapi.json"
_MAX_LOST_SHOWN: Final = 1000
_UNKNOWN: Final = "\N{EN DASH}"
"""Shown in place of an unknown figure."""


class Console:
    """Routes and templates of the console.

    Args:
        answers: by subject.
        manage_url: of manage's console; empty: there is none.
        view_url: of view's console; empty: there is none.
        readers: who may read the data of events.
    """

    def __init__(self, answers: Answers, manage_url: str, view_url: str, readers: EventDataReaders) -> None:
        self._readers = readers
        self._answers = answers
        self._manage_url = manage_url.rstrip("/")
        self.pages = ConsolePages(
            "hifi_observe.web",
            "observe",
            navigation("", self._manage_url or None, _API, view_url or None),
            "'unsafe-inline'",  # plotly.js adds style elements to the page
            {
                "clock": _clock,
                "duration": _duration,
                "iso": _iso,
                "strip_label": _strip_label,
                "strip_paths": _strip_paths,
                "moment": _time_text,
                "ms": _ms,
                "number": _number,
                "breaker": _breaker,
                "expected_end": _expected_end,
                "places": _places,
                "verdict": _verdict,
                "spans": runbooks.spans,
                "reasons": reasons_text,
            },
        )

    def routes(self, sign_in: SignIn) -> list[Route]:
        """Routes of the pages and of their assets."""
        paths: dict[str, tuple[str, Handler]] = {
            "console_overview": ("/", self.overview),
            "console_alarms": ("/alarms", self.alarms),
            "console_control": ("/control", self.control),
            "console_report": ("/report", self.report),
            "console_report_document": ("/report/document", self.report_document),
            "console_runbooks": (runbooks.PATH, self.runbooks),
            "console_pipe": ("/pipes/{pipe}", self.pipe),
            "console_colours": ("/pipes/{pipe}/colours", self.colours),
            "console_dead": ("/pipes/{pipe}/dead", self.dead),
            "console_minute": ("/pipes/{pipe}/minutes/{minute}", self.minute),
        }
        return [
            *(sign_in.page(path, name, handler, NEEDS) for name, (path, handler) in paths.items()),
            Route("/static/plotly.min.js", self.plotly, name="plotly"),
            Route("/static/{name}", self.static, name="static"),
        ]

    async def overview(self, _: Request, principal: Principal) -> Response:
        """The overview of all pipes."""
        overview = self._answers.pipes.overview(principal.sees)
        return self._page(
            principal,
            "overview.html",
            "Pipes",
            pipes=overview["pipes"],
            verdict=overview["verdict"],
            totals=overview["totals"],
        )

    async def pipe(self, request: Request, principal: Principal) -> Response:
        """The page of one pipe."""
        try:
            name = self._answers.pipes.require(request.path_params["pipe"])
        except Problem as error:
            return self._error_page(principal, error)
        pipe, recent_minutes = self._answers.pipes.pipe(name), self._answers.minutes.last_hour(name)
        watched_fields = self._answers.pipes.watched_fields(name)["fields"]
        watermarks = self._answers.watermarks.of_colour(lambda pipe_name: pipe_name == name)["watermarks"]
        return self._page(
            principal,
            "pipe.html",
            name,
            pipe=pipe,
            recent=recent_minutes,
            watched=watched_fields,
            watermarks=watermarks,
        )

    async def minute(self, request: Request, principal: Principal) -> Response:
        """One closed minute of a pipe, with its lost events."""
        try:
            name = self._answers.pipes.require(request.path_params["pipe"])
            merged = self._answers.minutes.merged(name, request.path_params["minute"])
            lost_events = await self._answers.records.lost(merged, _MAX_LOST_SHOWN, resolved=True)
        except Problem as error:
            return self._error_page(principal, error)
        title = f"{name}, {_clock(merged['minute'])}"
        return self._page(principal, "minute.html", title, minute=merged, lost=lost_events)

    async def colours(self, request: Request, principal: Principal) -> Response:
        """The last hour of a pipe over both colours."""
        try:
            name = self._answers.pipes.require(request.path_params["pipe"])
            both_colours = await self._answers.colours.minutes(name, 60)
        except Problem as error:
            return self._error_page(principal, error)
        return self._page(principal, "colours.html", f"{name} over both colours", both=both_colours)

    async def dead(self, request: Request, principal: Principal) -> Response:
        """The newest 200 dead letters of a pipe, filtered by service, reason and destination."""
        conditions = {
            field: request.query_params.get(field, "") for field in ("service", "reason", "destination")
        }
        try:
            name = self._answers.pipes.require(request.path_params["pipe"])
            dead_letters = await self._answers.records.dead(name, 200, conditions)
            dead_letters = await self._readers.shown(principal, name, dead_letters)
        except Problem as error:
            return self._error_page(principal, error)
        return self._page(
            principal,
            "dead.html",
            f"Dead letters of {name}",
            pipe=name,
            dead_letters=dead_letters,
            why_hidden=self._answers.records.why_hidden(name),
            conditions=conditions,
            operator=principal.role.includes(Role.OPERATOR),
        )

    async def alarms(self, _: Request, principal: Principal) -> Response:
        """Alarms and silences."""
        return self._page(
            principal,
            "alarms.html",
            "Alarms",
            alarms=self._answers.alarms.alarms(principal),
            kinds=KINDS,
            operator=principal.role.includes(Role.OPERATOR),
        )

    async def control(self, _: Request, principal: Principal) -> Response:
        """Verdicts, rollouts and the actions of the control plane."""
        return self._page(
            principal, "control.html", "Control", **self._answers.control.control(principal.sees)
        )

    async def report(self, request: Request, principal: Principal) -> Response:
        """The availability of a month."""
        month, pipe, owner = report_parameters(request)
        try:
            answer = self._answers.reports.report(month, pipe, owner, principal.sees)
        except Problem as error:
            return self._error_page(principal, error)
        query = urlencode({"month": month, "pipe": pipe, "owner": owner})
        page_values = self._report_values(answer) | {"query": query}
        return self._page(principal, "report.html", "Report", **page_values)

    async def report_document(self, request: Request, principal: Principal) -> Response:
        """The report of a month as a document of its own, to print; the header `hifi-signature` has its signature."""
        try:
            answer = self._answers.reports.report(*report_parameters(request), principal.sees)
        except Problem as error:
            return self._error_page(principal, error)
        content = self.pages.rendered("report-document.html", self._report_values(answer)).encode()
        signature = self._answers.reports.signature(content)
        headers = {**self.pages.headers, **({SIGNATURE: f"{ALGORITHM} {signature}"} if signature else {})}
        return HTMLResponse(content, headers=headers)

    def _report_values(self, answer: ReportJson) -> dict[str, Any]:
        return {"report": answer, "public_key": self._answers.reports.public_key}

    async def runbooks(self, _: Request, principal: Principal) -> Response:
        """The runbook of each kind of alarm."""
        return self._page(principal, "runbooks.html", "Runbooks", books=runbooks.RUNBOOKS)

    async def plotly(self, _: Request) -> Response:
        """plotly.js from the installed wheel."""
        file = Path(str(resources.files("plotly") / "package_data" / "plotly.min.js"))
        return FileResponse(file, media_type="text/javascript", headers={"cache-control": "max-age=86400"})

    async def static(self, request: Request) -> Response:
        """Style sheets and scripts of the console."""
        return self.pages.static(request.path_params["name"])

    def _page(
        self, principal: Principal, template: str, title: str, status: int = 200, **values: Any
    ) -> Response:
        counts = {"Alarms": len(self._answers.alarms.alarms(principal)["active"])}
        values |= {"status": self._answers.status.status(), "manage": self._manage_url}
        return self.pages.page(
            template, title, values, counts, status, f"{principal.name} ({principal.role.value})"
        )

    def _error_page(self, principal: Principal, error: Problem) -> Response:
        return self._page(principal, "error.html", error.title, error.status, detail=error.detail)


def _clock(minute: int) -> str:
    return datetime.fromtimestamp(minute * 60, UTC).strftime("%Y-%m-%d %H:%M")


def _duration(seconds: float) -> str:
    return f"{seconds / 60:g} min" if seconds >= 60 else f"{seconds:g} s"


def _iso(us: int) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _strip_paths(states: Sequence[str]) -> list[tuple[str, str]]:
    """State and SVG path of its bars, one bar per minute; must match `drawStrip` in console.js."""
    paths: dict[str, str] = {}
    for index, state in enumerate(states):
        paths[state] = paths.get(state, "") + f"M{index * 5} 0h4v16h-4z"
    return list(paths.items())


def _strip_label(states: Sequence[str]) -> str:
    counts = Counter(states)
    count_texts = [
        f"{counts[state]} {state}" for state in ("up", "down", PROVISIONAL, "unknown") if counts[state]
    ]
    return f"Last {len(states)} minutes: {', '.join(count_texts) or 'no events'}"


def _time_text(us: int | None) -> str:
    return datetime.fromtimestamp(us / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S") if us else _UNKNOWN


def _breaker(breaker: BreakerView) -> str:
    """Details of a circuit breaker that is not closed; must match `breakerDetails` in pipe.js."""
    if breaker["since_ms"] is None:
        return ""
    details = [f"since {_time_text(breaker['since_ms'] * 1000)} UTC"]
    if breaker["answer"]:
        details.append(f"answer {breaker['answer']}")
    if breaker["open_partitions"] < breaker["partitions"]:
        details.append(f"on {breaker['open_partitions']} of {breaker['partitions']} partitions")
    return ", ".join(details)


def _expected_end(source: dict[str, Any]) -> str:
    """When the backfill of a source is expected to end; must match `expectedEnd` in pipe.js."""
    if not source["backfill"]:
        return _UNKNOWN
    reason = f", held back by {source['late']}" if source["late"] else ""
    remaining_s = source["left_s"]
    if remaining_s is None:
        return f"not in sight{reason}"
    minutes = round(remaining_s / 60)
    remaining = f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"
    return f"in {f'{remaining_s} s' if remaining_s < 100 else remaining}{reason}"


def _places(finding: StepFindingJson) -> list[str]:
    """Options of `hifi step explain` for what a step's finding names; must match `places` in pipe.js."""
    offsets = [(suspect["partition"], str(suspect["offset"])) for suspect in finding["suspects"]]
    ranges = offsets or [(finding["partition"], f"{finding['first']}..{finding['last']}")]
    return [f"--partition {partition} --offset {offset}" for partition, offset in ranges]


def _verdict(verdict: str) -> str:
    """The meaning of a step's verdict on an event, empty for the reason of a dead letter; must match pipe.js."""
    return {
        FOLDED: "counted",
        "copy": "copy of an event that it had read",
        "left-out": "left out by where",
    }.get(verdict, "")


def _ms(us: float | None) -> str:
    if us is None:
        return _UNKNOWN
    return f"{us / 1000:.1f} ms" if abs(us) < 1_000_000 else f"{us / 1_000_000:.2f} s"


def _number(value: float | None, digits: int = 0) -> str:
    return _UNKNOWN if value is None else f"{value:,.{digits}f}"
