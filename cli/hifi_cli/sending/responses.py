"""Decide what to do with each event of a request after a response of ingest. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from hifi.runtime.errors import Misconfigured
from hifi_cli.sending.batches import RequestBatch
from hifi_cli.sending.event_files import FileEvent

MAX_WAIT_S: Final = 30.0


@dataclass(slots=True)
class ResponseDecision:
    """Decision after a response."""

    accepted: int = 0
    retry: list[RequestBatch] = field(default_factory=list)
    """Requests to send next: the same batch with its key, or new batches of the events that were not accepted."""
    wait_s: float = 0
    refused: list[tuple[int, str]] = field(default_factory=list)
    """Number of an event that is refused for good, and the reason."""
    unknown: list[tuple[FileEvent, str]] = field(default_factory=list)
    """Event that may or may not be in Kafka, and the id that it has there."""


def decide(batch: RequestBatch, status: int, headers: Mapping[str, str], body: bytes) -> ResponseDecision:
    """Decide by the status and the body of a response.

    Raises:
        Misconfigured: sending the request again cannot help: wrong key, pipe or address.
    """
    if status == 202:
        return ResponseDecision(accepted=len(batch.items))
    problem = _problem(body)
    detail = str(problem.get("detail", f"status {status}"))
    event_results = problem.get("events") or []
    if status in (429, 503) or status == 408:
        return _retry_later(batch, event_results, _wait_s(headers))
    if status in (400, 413, 422) and event_results:
        return _without_refused(batch, event_results)
    if status == 413 and len(batch.items) > 1:
        return _halved(batch)
    if status in (400, 413, 422) and len(batch.items) == 1:
        return ResponseDecision(refused=[(batch.items[0].number, detail)])
    raise Misconfigured(f"ingest answers {status}: {detail}")


def _retry_later(batch: RequestBatch, event_results: list[dict[str, Any]], wait_s: float) -> ResponseDecision:
    outcomes = {event["index"]: event for event in event_results}
    accepted_count = sum(event["outcome"] == "accepted" for event in event_results)
    if not accepted_count:
        # Ids are derived from key and index: no duplicates.
        return ResponseDecision(retry=[batch], wait_s=wait_s)
    refused = [event for index, event in enumerate(batch.items) if outcomes[index]["outcome"] == "refused"]
    unknown = [
        (event, str(outcomes[index]["id"]))
        for index, event in enumerate(batch.items)
        if outcomes[index]["outcome"] == "unknown"
    ]
    return ResponseDecision(accepted_count, _batches_of(batch, refused), wait_s, unknown=unknown)


def _without_refused(batch: RequestBatch, event_results: list[dict[str, Any]]) -> ResponseDecision:
    details = {event["index"]: str(event["detail"]) for event in event_results}
    refused = [(event.number, details[index]) for index, event in enumerate(batch.items) if index in details]
    remaining_events = [event for index, event in enumerate(batch.items) if index not in details]
    return ResponseDecision(refused=refused, retry=_batches_of(batch, remaining_events))


def _halved(batch: RequestBatch) -> ResponseDecision:
    middle = len(batch.items) // 2
    return ResponseDecision(
        retry=[*_batches_of(batch, batch.items[:middle]), *_batches_of(batch, batch.items[middle:])]
    )


def _batches_of(batch: RequestBatch, items: list[FileEvent]) -> list[RequestBatch]:
    """Make a batch of the remaining events. Their positions in the request change, so the batch needs a new key."""
    if not items:
        return []
    size = sum(len(event.data) + 1 for event in items)
    return [RequestBatch(f"{batch.key}.{items[0].number}.{len(items)}", items, size)]


def _wait_s(headers: Mapping[str, str]) -> float:
    try:
        return min(float(headers.get("retry-after", "1")), MAX_WAIT_S)
    except ValueError:
        return 1.0


def _problem(body: bytes) -> Mapping[str, Any]:
    try:
        problem = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return problem if isinstance(problem, dict) else {}
