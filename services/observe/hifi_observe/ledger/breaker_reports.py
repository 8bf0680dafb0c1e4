"""Circuit breakers of a destination, one for each instance of egest, as receipts report them. Pure.

From its first opening on, an instance names itself and its breaker's state in every receipt (field `hifi_breaker`). A
request without that field shows that the breaker of its instance has never been open. A partition belongs to one
instance at a time, so each partition number keeps the newest report, and the newest of each instance named in it. The
reports of all partition numbers are merged in `live/breaker_state.py`.
"""

from dataclasses import astuple, dataclass
from typing import Any, Final, NamedTuple

OPEN: Final = "open"
HALF_OPEN: Final = "half-open"
CLOSED: Final = "closed"
PAUSED: Final = "paused"
"""The destination asked for no requests (Retry-After)."""
REFUSED: Final = frozenset({"breaker-open", "paused"})
"""Reasons of a retry without a request, because of the destination's previous answers."""
_WITHOUT_ANSWER: Final = frozenset(
    {"dns", "egress", "connect", "tls", "timeout", "reset", "closed", "protocol"}
)
"""Reasons of a request that got no answer."""
_INSTANCES: Final = 8
"""Instances of egest that a partition number remembers for a destination."""


@dataclass(slots=True)
class BreakerReport:
    """The newest report on the breaker of one instance of egest. Times in milliseconds since 1970 UTC, 0: never."""

    state: str
    at_ms: int
    since_ms: int = 0
    """Since when it is not closed."""
    closed_ms: int = 0
    """When it was last reported closed."""
    answer: str = ""
    """The last failing answer."""
    answer_ms: int = 0

    def update(self, state: str, append_ms: int, answer: str) -> None:
        """Apply a newer receipt; `answer` is empty if it has no failing one."""
        if state == CLOSED:
            self.since_ms, self.closed_ms = 0, append_ms
        elif not self.since_ms:
            self.since_ms = append_ms
        self.state, self.at_ms = state, append_ms
        if answer:
            self.answer, self.answer_ms = answer, append_ms


class ReceiptAnswer(NamedTuple):
    """The answer of the destination as the header `hifi_receipt` has it; a field that it lacks is empty."""

    status: bytes = b""
    reason: bytes = b""
    breaker: bytes = b""

    @property
    def text(self) -> str:
        """The status of the answer, or a code if there was no answer."""
        return (self.status or self.reason or b"no answer").decode("utf-8", "replace")


NO_ANSWER: Final = ReceiptAnswer()


class _InstanceState(NamedTuple):
    instance: str
    """Empty: the receipt names none."""
    state: str


def failing_answer(outcome: str, answer: ReceiptAnswer) -> str:
    """The answer because of which a delivery went to the retrier: a status, or a code if there was none; else empty."""
    if outcome != "retry":
        return ""
    reason = answer.reason.decode("utf-8", "replace")
    return answer.status.decode("ascii", "replace") or (reason if reason in _WITHOUT_ANSWER else "")


class BreakerReports:
    """Of one destination, from the receipts of one partition number. Bounded."""

    __slots__ = ("_by_instance",)

    def __init__(self) -> None:
        self._by_instance: dict[str, BreakerReport] = {}
        """Instance, or empty if none was named, to its newest report; the newest last."""

    def add(self, outcome: str, answer: ReceiptAnswer, append_ms: int) -> None:
        """Add a receipt.

        Args:
            outcome: of the receipt.
            answer: of the receipt.
            append_ms: when it was appended, milliseconds since 1970 UTC.
        """
        failure = failing_answer(outcome, answer)
        instance_state = self._instance_state(outcome, answer, failure)
        if instance_state is None:
            return
        instance, state = instance_state
        report = self._by_instance.pop(instance, None) or BreakerReport(state, append_ms)
        report.update(state, append_ms, failure)
        self._by_instance[instance] = report
        if len(self._by_instance) > _INSTANCES:
            del self._by_instance[next(iter(self._by_instance))]

    def _instance_state(self, outcome: str, answer: ReceiptAnswer, failure: str) -> _InstanceState | None:
        """The breaker state that a receipt reports; None: nothing."""
        if answer.breaker:
            state, _, instance = answer.breaker.decode("utf-8", "replace").partition(":")
            return _InstanceState(instance, state) if state in (OPEN, HALF_OPEN, CLOSED, PAUSED) else None
        if answer.reason == b"breaker-open":
            return _InstanceState("", OPEN)
        if outcome == "delivered" or answer.status or failure:
            previous_report = self._by_instance.get("")
            # The failed probe of an egest that names no breaker leaves it open.
            probe = bool(failure) and previous_report is not None and previous_report.state == OPEN
            return _InstanceState("", OPEN if probe else CLOSED)
        return None

    def dump(self) -> list[list[Any]]:
        """JSON rows for the topic `minutes`, the newest report last."""
        return [[instance, *astuple(report)] for instance, report in self._by_instance.items()]


def load_reports(rows: list[list[Any]]) -> dict[str, BreakerReport]:
    """Restore what `BreakerReports.dump` returned: instance to report, the newest last."""
    return {row[0]: BreakerReport(*row[1:]) for row in rows}
