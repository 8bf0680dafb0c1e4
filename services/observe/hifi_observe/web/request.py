"""Parse request parameters."""

from datetime import UTC

from starlette.requests import Request

from hifi.record.cloudevents.timestamps import parse_iso8601
from hifi.runtime.clock import now_us
from hifi.runtime.http.parameters import whole_number
from hifi.runtime.http.problem import Problem
from hifi_observe.reports.month import month_before


def minute_of(text: str) -> int:
    """Parse a minute, given as minutes since 1970 UTC or as an ISO 8601 time (UTC if it has no zone).

    Raises:
        Problem: 400, the text is neither.
    """
    minute = whole_number(text.removeprefix("-"))
    if minute is not None:
        return -minute if text.startswith("-") else minute
    try:
        time = parse_iso8601(text)
    except ValueError:
        raise Problem(
            400,
            f"{text!r} is neither minutes since 1970 UTC nor a time such as 2026-11-21T10:04",
            title="Invalid minute",
        ) from None
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() // 60)


def report_parameters(request: Request) -> tuple[str, str, str]:
    """Month, pipe and owner of a report; by default the last month that has ended, and all pipes."""
    parameters = request.query_params
    month = parameters.get("month") or month_before(now_us() // 60_000_000)
    return month, parameters.get("pipe", ""), parameters.get("owner", "")


def positive_integer(request: Request, name: str, default: int, maximum: int) -> int:
    """Return a query parameter that is an integer from 1 to `maximum`.

    Raises:
        Problem: 400, it is not.
    """
    number = whole_number(request.query_params.get(name, str(default)), maximum)
    if not number:
        raise Problem(400, f"`{name}` must be an integer from 1 to {maximum}", title="Invalid parameter")
    return number
