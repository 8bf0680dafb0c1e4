"""What an answer of ingest means for each item of a batch. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from hifi.errors import Misconfigured
from hifi_cli.sending.batches import RequestBatch
from hifi_cli.sending.event_files import FileEvent

MOST_WAIT_S: Final = 30.0


@dataclass(slots=True)
class ResponseDecision:
    """What to do after an answer."""

    accepted: int = 0
    again: list[RequestBatch] = field(default_factory=list)
    """Send these next: the same batch under its key, or what is left of it."""
    wait_s: float = 0
    refused: list[tuple[int, str]] = field(default_factory=list)
    """Number of an item that will never be taken, and why."""
    unknown: list[tuple[FileEvent, str]] = field(default_factory=list)
    """FileEvent that Kafka may or may not have, and the id that it has there."""


def decide(batch: RequestBatch, status: int, headers: Mapping[str, str], body: bytes) -> ResponseDecision:
    """Read an answer.

    Raises:
        Misconfigured: no repetition will help any item: wrong key, pipe or address.
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
    outcomes = {one["index"]: one for one in listed}
    accepted = sum(one["outcome"] == "accepted" for one in listed)
    if not accepted:
        return ResponseDecision(
            again=[batch], wait_s=wait_s
        )  # the ids are made of key and index: nothing comes twice
    refused = [item for index, item in enumerate(batch.items) if outcomes[index]["outcome"] == "refused"]
    unknown = [
        (item, str(outcomes[index]["id"]))
        for index, item in enumerate(batch.items)
        if outcomes[index]["outcome"] == "unknown"
    ]
    return ResponseDecision(accepted, _rest(batch, refused), wait_s, unknown=unknown)


def _without(batch: RequestBatch, listed: list[dict[str, Any]]) -> ResponseDecision:
    bad = {one["index"]: str(one["detail"]) for one in listed}
    refused = [(item.number, bad[index]) for index, item in enumerate(batch.items) if index in bad]
    rest = [item for index, item in enumerate(batch.items) if index not in bad]
    return ResponseDecision(refused=refused, again=_rest(batch, rest))


def _halved(batch: RequestBatch) -> ResponseDecision:
    half = len(batch.items) // 2
    return ResponseDecision(again=[*_rest(batch, batch.items[:half]), *_rest(batch, batch.items[half:])])


def _rest(batch: RequestBatch, items: list[FileEvent]) -> list[RequestBatch]:
    """A new batch of items that were not taken: other places in the request, so another key."""
    if not items:
        return []
    size = sum(len(item.data) + 1 for item in items)
    return [RequestBatch(f"{batch.key}.{items[0].number}.{len(items)}", items, size)]


def _wait_s(headers: Mapping[str, str]) -> float:
    try:
        return min(float(headers.get("retry-after", "1")), MOST_WAIT_S)
    except ValueError:
        return 1.0


def _problem(body: bytes) -> Mapping[str, Any]:
    try:
        problem = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return problem if isinstance(problem, dict) else {}
