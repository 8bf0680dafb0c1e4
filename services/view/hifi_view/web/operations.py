"""The table of the API's operations, from which its routes and its OpenAPI document are built, and their bodies."""

from typing import Any, Final, Literal, NotRequired

from pydantic import BaseModel, ConfigDict
from typing_extensions import TypedDict

from hifi.runtime.http.openapi import ApiDescription, Operation

_FILTERS: Final = "Filters are further parameters: `FIELD=VALUE`, `FIELD.min=VALUE` and `FIELD.max=VALUE`. "
_AT_LEAST: Final = {"at_least": "Time until which the view must be complete, such as 2026-11-27T12:00:00Z."}

API: Final = ApiDescription(
    "hifi view",
    "The newest event of each key of a pipe. The header `hifi-complete-until` of an answer says until when everything "
    "that was accepted is in it.",
    {
        400: "The request is invalid.",
        401: "The read key is missing or unknown.",
        403: "The view accepts no SQL.",
        404: "The key opens no view of this name, or the view has no row of this key.",
        413: "The body is too large.",
        422: "The answer takes too long or is too large.",
        503: "The view is not complete until `at_least` in time, is read anew, or has too many readers.",
    },
    {"name": "Name of the view.", "key": "Key of the row; several parts have slashes between them."},
    "read key",
)


class ViewSummary(TypedDict):
    """A view: its source, its state and its size."""

    view: str
    pipe: str
    at: str
    state: str
    reason: str
    complete_until: str
    behind_s: float | None
    rows: int
    size_bytes: int
    positions: dict[str, int]
    """Partition to the offset that is read next."""


class ViewAbout(ViewSummary):
    """A view with its fields."""

    key: list[str]
    fields: dict[str, str]
    """Name to type."""
    table: str


class ViewList(TypedDict):
    """The views that a read key opens."""

    views: list[ViewSummary]


class RowPage(TypedDict):
    """Rows in the order of their keys; `next` is `after` of the next page."""

    rows: list[dict[str, Any]]
    next: str | None


class SqlRequest(BaseModel):
    """A query."""

    model_config = ConfigDict(extra="forbid", strict=True)

    sql: str


class SqlResult(TypedDict):
    """Rows of a query; `more`: whether there are further rows."""

    columns: list[str]
    rows: list[list[Any]]
    more: bool


class ServerSentChange(TypedDict):
    """A server-sent event: `data` is the JSON of a row, of a time, or of an empty object where all rows follow."""

    event: Literal["row", "complete-until", "reset"]
    data: str
    id: NotRequired[str]


class AccountRange(TypedDict):
    """The outcomes of the records of an offset range of a partition."""

    partition: int
    first: int
    next: int
    absent: int
    read: int
    other: int
    no_data: int
    applied: int
    older: int
    expired: int
    refused: int
    unfit: int


class RefusedRecord(TypedDict):
    """An event that has no row."""

    partition: int
    offset: int
    event: str
    reason: str


class AccountList(TypedDict):
    """All ranges, and the events that were refused last."""

    ranges: list[AccountRange]
    refused: list[RefusedRecord]


def _read(
    path: str,
    name: str,
    summary: str,
    answer: Any,
    parameters: dict[str, str] | None = None,
    *,
    media: str = "application/json",
    statuses: tuple[int, ...] = (),
) -> Operation:
    """A GET of a view."""
    return Operation(
        "GET",
        f"/v1/views/{{name}}{path}",
        name,
        summary,
        (parameters or {}) | _AT_LEAST,
        (400, 401, 404, *statuses, 503),
        secured=True,
        answer=answer,
        media=media,
    )


OPERATIONS: Final = (
    Operation(
        "GET",
        "/v1/views",
        "listed",
        "The views that the key opens.",
        {},
        (401,),
        secured=True,
        answer=ViewList,
    ),
    _read("", "about", "A view: fields, state, size.", ViewAbout),
    _read(
        "/rows",
        "rows",
        f"Rows in the order of their keys. {_FILTERS}",
        RowPage,
        {"after": "`next` of the answer before.", "limit": "Most rows; default 1000."},
        statuses=(422,),
    ),
    _read("/rows/{key}", "row", "The row of a key.", dict[str, Any]),
    Operation(
        "POST",
        "/v1/views/{name}/sql",
        "sql",
        "The answer to one SELECT from the table of the view.",
        _AT_LEAST,
        (400, 401, 403, 404, 413, 422, 503),
        secured=True,
        body=SqlRequest,
        answer=SqlResult,
    ),
    _read(
        "/changes",
        "changes",
        f"Rows as they change, as server-sent events, for a minute. {_FILTERS}Only fields of the key are filtered.",
        ServerSentChange,
        media="text/event-stream",
    ),
    _read("/accounts", "accounts", "What became of each record, and the events refused last.", AccountList),
)
