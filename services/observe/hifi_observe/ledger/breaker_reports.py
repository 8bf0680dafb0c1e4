"""How the circuit breakers of a destination are, as egest's receipts tell: one for each instance of egest. Pure.

A receipt says how the breaker of the instance that wrote it was, from its first opening on (header `hifi_breaker`);
without the header a request that was made says that it has never been open. A partition is one instance's at a time, so
each partition number keeps the newest word, and the word on every instance that was named there. What concerns an
instance is put together over all partition numbers: where it closed on one, it is not open on another.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hifi.event import BREAKER, REASON, STATUS

OPEN: Final = "open"
HALF_OPEN: Final = "half-open"
CLOSED: Final = "closed"
UNKNOWN: Final = "unknown"
REFUSED: Final = frozenset({"breaker-open", "paused"})
"""Reasons of a retry that no request was made for, because of how the destination answered before."""
_NO_ANSWER: Final = frozenset({"dns", "connect", "tls", "timeout", "reset", "closed", "protocol"})
"""Reasons of a request that got no answer."""
_INSTANCES: Final = 8
"""Instances of egest that a partition number remembers for a destination."""


def failing_answer(outcome: str, headers: Mapping[str, bytes]) -> str:
    """The answer for which a delivery went to the retrier: a status, or a code where there was none; else empty."""
    if outcome != "retry":
        return ""
    reason = headers.get(REASON, b"").decode("utf-8", "replace")
    return headers.get(STATUS, b"").decode("ascii", "replace") or (reason if reason in _NO_ANSWER else "")


@dataclass(slots=True)
class BreakerReport:
    """The newest word on the breaker of one instance of egest. Times in milliseconds since 1970 UTC, 0: never."""

    state: str
    at_ms: int
    since_ms: int = 0
    """Since when it is not closed."""
    closed_ms: int = 0
    """When it was last told to be closed."""
    answer: str = ""
    """The last failing answer."""
    answer_ms: int = 0

    def json(self, instance: str) -> list[Any]:
        """For the topic."""
        return [
            instance, self.state, self.at_ms, self.since_ms, self.closed_ms, self.answer, self.answer_ms
        ]  # fmt: skip


class BreakerReports:
    """Of one destination, as one partition number's receipts tell. Bounded."""

    __slots__ = ("_words",)

    def __init__(self) -> None:
        self._words: dict[str, BreakerReport] = {}
        """Instance, or empty where none was named, to the newest word; the newest last."""

    def tell(self, outcome: str, headers: Mapping[str, bytes], append_ms: int) -> None:
        """A receipt was seen.

        Args:
            outcome: that it tells.
            headers: of it.
            append_ms: when it was appended, milliseconds since 1970 UTC.
        """
        answer = failing_answer(outcome, headers)
        said = headers.get(BREAKER)
        if said is not None:
            state, _, instance = said.decode("utf-8", "replace").partition(":")
            if state not in (OPEN, HALF_OPEN, CLOSED):
                return
        elif headers.get(REASON) == b"breaker-open":
            state, instance = OPEN, ""
        elif outcome == "delivered" or STATUS in headers or answer:
            state, instance = CLOSED, ""
            before = self._words.get("")
            if answer and before is not None and before.state == OPEN:
                state = OPEN  # the probe of an egest that names no breaker
        else:
            return
        word = self._words.pop(instance, None) or BreakerReport(state, append_ms)
        if state == CLOSED:
            word.since_ms, word.closed_ms = 0, append_ms
        elif not word.since_ms:
            word.since_ms = append_ms
        word.state, word.at_ms = state, append_ms
        if answer:
            word.answer, word.answer_ms = answer, append_ms
        self._words[instance] = word
        if len(self._words) > _INSTANCES:
            del self._words[next(iter(self._words))]

    def json(self) -> list[list[Any]]:
        """For the topic: the words, the newest last."""
        return [word.json(instance) for instance, word in self._words.items()]


def merged(told: Iterable[list[list[Any]]]) -> dict[str, Any]:
    """A destination's breaker over all partition numbers.

    Args:
        told: what `Breakers.json` made, for each partition number that has seen any receipt of the destination.

    Returns:
        `state`: `open` when any instance's is, else `half-open`, else `closed`; `unknown` while no receipt told.
        `since_ms`, `answer`: since when it is not closed, and the failing answer; None where it is closed or nobody
        knows. `seen_ms`: when that was last told. `open_partitions` of `partitions` that told anything.
    """
    kept = [[(row[0], BreakerReport(*row[1:])) for row in rows] for rows in told if rows]
    if not kept:
        return {
            "state": UNKNOWN, "since_ms": None, "answer": None, "seen_ms": None,
            "open_partitions": 0, "partitions": 0,
        }  # fmt: skip
    instances: dict[str, BreakerReport] = {}
    for instance, word in (one for rows in kept for one in rows if one[0]):
        instances[instance] = _together(instances[instance], word) if instance in instances else word
    # What is not told of an instance counts for its partition alone.
    now = [instances.get(rows[-1][0], rows[-1][1]) for rows in kept]
    broken = [word for word in now if word.state != CLOSED]
    known = [word for word in broken if word.answer]
    # The answer may have come before the breaker had a name.
    known = known or [word for rows in kept for _, word in rows if word.answer]
    return {
        "state": CLOSED if not broken else OPEN if any(one.state == OPEN for one in broken) else HALF_OPEN,
        "since_ms": min((word.since_ms for word in broken), default=None),
        "answer": max(known, key=_answered).answer if broken and known else None,
        "seen_ms": max(word.at_ms for word in broken or now),
        "open_partitions": len(broken),
        "partitions": len(kept),
    }


def _answered(word: BreakerReport) -> int:
    return word.answer_ms


def _together(one: BreakerReport, other: BreakerReport) -> BreakerReport:
    """What two partition numbers tell of the same instance."""
    newer = max(one, other, key=lambda word: word.at_ms)
    closed_ms = max(one.closed_ms, other.closed_ms)
    since = [word.since_ms for word in (one, other) if word.since_ms > closed_ms]
    answered = max(one, other, key=_answered)
    return BreakerReport(
        newer.state,
        newer.at_ms,
        min(since, default=0 if newer.state == CLOSED else closed_ms),
        closed_ms,
        answered.answer,
        answered.answer_ms,
    )
