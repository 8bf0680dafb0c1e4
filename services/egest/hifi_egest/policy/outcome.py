"""The outcomes of deliveries, and which one follows from the answer, the retry policy and the counts. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, TypeAlias

from hifi.delivery.answer import Answer, NoResponse, RefusedWrite
from hifi.delivery.sender import SplitBatch
from hifi.kafka.topics import Tier
from hifi.pipe.model import RetryPolicy
from hifi.pipe.revision import PIPE_UNREADABLE
from hifi_egest.policy import tiers as tier_of

LOCAL_S: Final = 1.0
"""Local retries end this long after the first request of the pass, seconds."""
LOCAL_BASE_S: Final = 0.2
"""Maximum backoff before the first local retry, seconds; it doubles with each."""
RECOVERABLE: Final = frozenset({408, 425, 429})
"""Statuses below 500 after which the same request is tried again."""
UNCLEAR: Final = frozenset({401, 403, 404})
"""One such answer is about the event; many equal ones in a row are about the destination."""
SPLITTABLE: Final = frozenset({400, 413, 422})
"""As the answer to a batch these may be about a single event of it."""
PAUSING: Final = frozenset({429, 503})
"""A `Retry-After` with one of these statuses is about the destination as a whole, not about one event."""
NO_LOG: Final = "log-unknown"
"""Nothing was sent, since the identity of the stream's log is not known."""
_UNREACHED: Final = frozenset({"dns", "connect", "proxy", "tls", "egress", NO_LOG})
"""With these reasons no event has reached the destination."""


@dataclass(frozen=True, slots=True)
class AttemptCounts:
    """Attempts of one delivery, including the request that just ended.

    Attributes:
        attempts: requests in all.
        local: requests in this pass.
        age_s: time since the first request or the first hand-over, seconds.
        pass_age_s: time since the first request of this pass, seconds.
        passes: completed retry passes.
    """

    attempts: int
    local: int
    age_s: float
    pass_age_s: float
    passes: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """The destination accepted the delivery."""

    name: ClassVar = b"delivered"
    reason: ClassVar = ""


DELIVERED: Final = Delivered()


@dataclass(frozen=True, slots=True)
class Filtered:
    """No destination wants the event."""

    name: ClassVar = b"filtered"
    reason: ClassVar = ""


@dataclass(frozen=True, slots=True)
class RetryLocally:
    """Send again from this instance after `after_s` seconds."""

    after_s: float


@dataclass(frozen=True, slots=True)
class RetryLater:
    """Hand over to the retrier.

    Attributes:
        tier: retry topic in which the delivery waits.
        reason: stable code.
        detail: one sentence for a person.
        wait_s: wait that the destination asked for, where it exceeds the tier's delay, seconds.
    """

    name: ClassVar = b"retry"
    tier: Tier
    reason: str
    detail: str
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class Parked:
    """Write to the topic `parked`, where it waits until the destination is resumed. `reason` and `detail` as above."""

    name: ClassVar = b"parked"
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """Write a dead letter with this stable reason and a detail for a person."""

    name: ClassVar = b"dead-letter"
    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class WrittenBefore:
    """The last owner of the partition wrote the retry, the parked delivery or the dead letter without a receipt.

    Attributes:
        name: retry, parked or dead-letter.
        reason: stable code.
    """

    name: bytes
    reason: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """A 401, 403 or 404: the next answers show whether the event or the destination is at fault."""

    status: int


HandedOver: TypeAlias = RetryLater | Parked | DeadLettered
"""Outcomes with a record of their own, which Kafka acknowledges before the receipt is written."""
Outcome: TypeAlias = Delivered | Filtered | HandedOver | WrittenBefore
"""Outcome of a delivery in this pass."""
NextStep: TypeAlias = Delivered | RetryLocally | RetryLater | DeadLettered | SplitBatch | Unclear


class Deferral(NamedTuple):
    """The reason to hand a delivery to the retrier without a request.

    Attributes:
        reason: stable code.
        detail: one sentence for a person.
        wait_s: wait that the destination asked for, seconds.
    """

    reason: str
    detail: str
    wait_s: float | None = None


FAILED: Final = DeadLettered("egest-failed", "egest failed on this event; see its log")
REVOKED: Final = Deferral("handed-on", "the partition was revoked from the instance that sent it")
LANE_FULL: Final = Deferral("lane-full", "the lane of the destination is full")
PIPES_BEHIND: Final = Deferral("pipes-behind", "this instance does not know the pipe's revision yet")
HELD: Final = Deferral(
    PIPE_UNREADABLE, "the declaration of the pipe cannot be read, so that the pipe is held"
)
UNKNOWN_PIPE: Final = frozenset({PIPES_BEHIND, HELD})
"""With these it is not known whether the destination exists."""


def recoverable(result: Answer | NoResponse | RefusedWrite, policy: RetryPolicy) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(result, NoResponse):
        return True
    if isinstance(result, RefusedWrite):
        return False
    status = result.status
    if status in policy.never:
        return False
    return status in policy.also or status in RECOVERABLE or 500 <= status < 600


def decide(
    result: Answer | NoResponse | RefusedWrite,
    policy: RetryPolicy,
    counts: AttemptCounts,
    tiers: Sequence[Tier],
    *,
    jitter: float,
    batch: int = 1,
    local: bool = True,
) -> NextStep:
    """Decide what happens to a delivery after a request.

    Args:
        result: of the request.
        policy: of the destination.
        counts: of the delivery; of a batch, the largest of each.
        tiers: ascending.
        jitter: random number from 0 to 1, for full jitter (AWS, "Exponential Backoff and Jitter", 2015).
        batch: events in the request.
        local: whether local retries are possible.
    """
    if isinstance(result, Answer) and 200 <= result.status < 300:
        return DELIVERED
    if isinstance(result, RefusedWrite) or (isinstance(result, Answer) and not recoverable(result, policy)):
        return _after_refusal(result, policy, batch)
    step = _after_failure(result, policy, counts, tiers, jitter if local else None)
    if batch > 1 and counts.passes and not isinstance(step, RetryLocally) and _may_be_about_one(result):
        return SplitBatch()  # an event that always fails must not take others with it in each pass
    return step


def _after_failure(
    result: Answer | NoResponse,
    policy: RetryPolicy,
    counts: AttemptCounts,
    tiers: Sequence[Tier],
    jitter: float | None,
) -> RetryLocally | RetryLater | DeadLettered:
    """The action after a recoverable result; `jitter`: see `decide`; None: local retries are not possible."""
    reason, detail = _reason_and_detail(result)
    if counts.attempts >= policy.max_attempts:
        return DeadLettered("gave-up", f"{counts.attempts} requests were sent; the last one: {detail}")
    if counts.age_s >= policy.max_age:
        return DeadLettered(
            "gave-up", f"the delivery began {counts.age_s:.0f} s ago; the last request: {detail}"
        )
    wait_s = result.retry_after_s if isinstance(result, Answer) else None
    if wait_s is not None:
        wait_s = min(wait_s, policy.max_pause)
    if jitter is not None and counts.local < policy.local_attempts:
        after_s = jitter * LOCAL_BASE_S * 2 ** (counts.local - 1) + (wait_s or 0.0)
        if counts.pass_age_s + after_s <= LOCAL_S:
            return RetryLocally(after_s)
    return retry_later(reason, detail, counts.passes, tiers, wait_s, policy.max_age - counts.age_s)


def retry_later(
    reason: str,
    detail: str,
    passes: int,
    tiers: Sequence[Tier],
    wait_s: float | None = None,
    remaining_s: float = math.inf,
) -> RetryLater:
    """Hand over to the tier of this pass, or to the tier for the wait that the destination asked for.

    Args:
        reason: stable code.
        detail: one sentence for a person.
        passes: completed retry passes.
        tiers: ascending.
        wait_s: wait that the destination asked for, seconds.
        remaining_s: time until the delivery reaches `max_age`, after which it must not wait, seconds.
    """
    if wait_s is None:
        tier = tier_of.by_pass(passes, tiers)
        if tier.delay_s > remaining_s:
            tier = tier_of.within(remaining_s, tiers)
        return RetryLater(tier, reason, detail)
    wait_s = min(wait_s, remaining_s)
    tier = tier_of.within(wait_s, tiers)
    return RetryLater(tier, reason, detail, wait_s if wait_s > tier.delay_s else None)


def too_old(policy: RetryPolicy, age_s: float, attempts: int) -> DeadLettered | None:
    """The dead letter of a delivery that reached `max_age`, instead of another hand-over without a request.

    Args:
        policy: of the destination.
        age_s: time since the first request or the first hand-over, seconds; 0: there was neither.
        attempts: requests so far.
    """
    if age_s < policy.max_age:
        return None
    requests_text = f"{attempts} requests were sent" if attempts else "no request could be sent"
    return DeadLettered("gave-up", f"the delivery began {age_s:.0f} s ago; {requests_text}")


def deleted(pipe: str, destination: str, *, elsewhere: bool = False) -> DeadLettered:
    """The dead letter of a delivery whose pipe or destination was deleted.

    Args:
        pipe: name.
        destination: name.
        elsewhere: there is one of this name to which the service lake delivers, by way of enrich.
    """
    if elsewhere:
        detail = f"lake delivers to the destination {destination} of the pipe {pipe}, not egest; replay it"
    else:
        detail = f"the pipe {pipe} no longer has a destination {destination}; declare it, then replay"
    return DeadLettered("pipe-deleted", detail)


def refused(status: int) -> DeadLettered:
    """The dead letter of an event that the destination refuses."""
    answer_text = "redirects, which are not followed" if 300 <= status < 400 else f"answers {status}"
    return DeadLettered(f"status-{status}", f"the destination {answer_text}")


def _after_refusal(result: Answer | RefusedWrite, policy: RetryPolicy, batch: int) -> NextStep:
    if isinstance(result, RefusedWrite):
        return SplitBatch() if batch > 1 else DeadLettered(result.reason, result.detail)
    status = result.status
    if batch > 1 and status in SPLITTABLE:
        return SplitBatch()
    if status in UNCLEAR and status not in policy.never:
        return Unclear(status)
    return refused(status)


def _may_be_about_one(result: Answer | NoResponse) -> bool:
    """Whether a recoverable result of a batch may be about a single event of it."""
    if isinstance(result, Answer):
        return result.status not in PAUSING
    return result.reason not in _UNREACHED


def _reason_and_detail(result: Answer | NoResponse) -> tuple[str, str]:
    if isinstance(result, Answer):
        return result.reason, f"the destination answers {result.status}"
    return result.reason, result.detail
