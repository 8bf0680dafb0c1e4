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
    """What to do after a response."""

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
    listed = problem.get("events") or []
    if status in (429, 503) or status == 408:
        return _later(batch, listed, _wait_s(headers))
    if status in (400, 413, 422) and listed:
        return _without(batch, listed)
    if status == 413 and len(batch.items) > 1:
        return _halved(batch)
    if status in (400, 413, 422) and len(batch.items) == 1:
        return ResponseDecision(refused=[(batch.items[0].number, detail)])
    raise Misconfigured(f"ingest answers {status}: {detail}")


def _later(batch: RequestBatch, listed: list[dict[str, Any]], wait_s: float) -> ResponseDecision:
    outcomes = {event["index"]: event for event in listed}
    accepted = sum(event["outcome"] == "accepted" for event in listed)
    if not accepted:
        return ResponseDecision(
            retry=[batch], wait_s=wait_s
        )  # ids are derived from key and index: no duplicates
    refused = [event for index, event in enumerate(batch.items) if outcomes[index]["outcome"] == "refused"]
    unknown = [
        (event, str(outcomes[index]["id"]))
        for index, event in enumerate(batch.items)
        if outcomes[index]["outcome"] == "unknown"
    ]
    return ResponseDecision(accepted, _rest(batch, refused), wait_s, unknown=unknown)


def _without(batch: RequestBatch, listed: list[dict[str, Any]]) -> ResponseDecision:
    bad = {event["index"]: str(event["detail"]) for event in listed}
    refused = [(event.number, bad[index]) for index, event in enumerate(batch.items) if index in bad]
    remaining = [event for index, event in enumerate(batch.items) if index not in bad]
    return ResponseDecision(refused=refused, retry=_rest(batch, remaining))


def _halved(batch: RequestBatch) -> ResponseDecision:
    half = len(batch.items) // 2
    return ResponseDecision(retry=[*_rest(batch, batch.items[:half]), *_rest(batch, batch.items[half:])])


def _rest(batch: RequestBatch, items: list[FileEvent]) -> list[RequestBatch]:
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
