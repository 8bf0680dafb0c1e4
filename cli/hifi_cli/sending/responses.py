"""Decide what to do with each event of a request after a response of ingest. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from hifi.runtime.errors import Misconfigured
from hifi_cli.sending.batches import RequestBatch
from hifi_cli.sending.event_files import FileEvent

_MIN_WAIT_S: Final = 0.2
_MAX_WAIT_S: Final = 30.0
_TEMPORARY: Final = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses after which the same request may succeed. A front answers 502 or 504 while the ingest behind it ends."""


@dataclass(slots=True)
class ResponseDecision:
    """Decision after a response."""

    accepted: int = 0
    retry: list[RequestBatch] = field(default_factory=list)
    """Requests to send next: the same batch with its key, or new batches of the events that were not accepted."""
    obstacle: str = ""
    """Why to wait before the next request; empty: send it at once."""
    wait_s: float = 0
    refused: list[tuple[int, str]] = field(default_factory=list)
    """Number of an event that is refused for good, and the reason."""


def decide(batch: RequestBatch, status: int, headers: Mapping[str, str], body: bytes) -> ResponseDecision:
    """Decide by the status and the body of a response.

    Args:
        batch: of the request; its `tries` include the one that has this response.
        status: of the response.
        headers: of the response, with names in lower case.
        body: of the response.

    Raises:
        Misconfigured: sending the request again cannot help: wrong key, pipe or address.
    """
    if status == 202:
        return ResponseDecision(accepted=len(batch.items))
    problem = _problem(body)
    detail = str(problem.get("detail", "no reason given"))
    event_results = problem.get("events") or []
    if status in _TEMPORARY:
        decision = _without_accepted(batch, event_results)
        decision.obstacle, decision.wait_s = f"ingest answers {status}: {detail}", _wait_s(headers)
        return decision
    if status in (400, 413, 422) and event_results:
        return _without_refused(batch, event_results)
    if status == 413 and len(batch.items) > 1:
        return _halved(batch)
    if status in (400, 413, 422) and len(batch.items) == 1:
        return ResponseDecision(refused=[(batch.items[0].number, detail)])
    raise Misconfigured(f"ingest answers {status}: {detail}")


def _without_accepted(batch: RequestBatch, event_results: list[dict[str, Any]]) -> ResponseDecision:
    """Send the events again that were not accepted, or all if the outcome of one is unknown, perhaps of an earlier try.

    Ingest derives the id of an event from the key of the request and from the event's index and data. normalize
    recognizes by it an event that is in Kafka already, so that one can only be sent again in the whole batch.
    """
    outcomes = {event["index"]: event.get("outcome") for event in event_results}
    refused_events = [event for index, event in enumerate(batch.items) if outcomes.get(index) == "refused"]
    accepted_count = list(outcomes.values()).count("accepted")
    is_certain = batch.tries == 1 and accepted_count + len(refused_events) == len(batch.items)
    if not accepted_count or not is_certain:
        return ResponseDecision(retry=[batch])
    return ResponseDecision(accepted_count, _batches_of(batch, refused_events))


def _without_refused(batch: RequestBatch, event_results: list[dict[str, Any]]) -> ResponseDecision:
    details = {event["index"]: str(event["detail"]) for event in event_results}
    refused_details = [
        (event.number, details[index]) for index, event in enumerate(batch.items) if index in details
    ]
    remaining_events = [event for index, event in enumerate(batch.items) if index not in details]
    return ResponseDecision(refused=refused_details, retry=_batches_of(batch, remaining_events))


def _halved(batch: RequestBatch) -> ResponseDecision:
    middle = len(batch.items) // 2
    return ResponseDecision(
        retry=[*_batches_of(batch, batch.items[:middle]), *_batches_of(batch, batch.items[middle:])]
    )


def _batches_of(batch: RequestBatch, items: list[FileEvent]) -> list[RequestBatch]:
    """Make a batch of the remaining events. Their positions in the request change, so the batch needs a new key.

    They are fewer than those of any earlier batch that begins with the same event, so no other one has the key. It does
    not grow with each division: ingest takes keys of up to 200 characters.
    """
    if not items:
        return []
    size = sum(len(event.data) + 1 for event in items)
    first_key, _, _ = batch.key.partition(".")
    return [RequestBatch(f"{first_key}.{items[0].number}.{len(items)}", items, size)]


def _wait_s(headers: Mapping[str, str]) -> float:
    try:
        return min(max(_MIN_WAIT_S, float(headers.get("retry-after", "1"))), _MAX_WAIT_S)
    except ValueError:
        return 1.0


def _problem(body: bytes) -> Mapping[str, Any]:
    try:
        problem = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return problem if isinstance(problem, dict) else {}
