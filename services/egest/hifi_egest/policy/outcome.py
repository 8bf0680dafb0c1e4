"""What to do after a request: pure decisions from the answer, the destination's policy and the counters."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from hifi.pipe.model import Retry
from hifi.topics import Tier
from hifi_egest.policy import tiers as tier_of
from hifi_egest.policy.answer import Answer, Silence

LOCAL_S: Final = 1.0
"""Local retries end this long after the first request of the pass, seconds."""
LOCAL_BASE_S: Final = 0.2
RECOVERABLE: Final = frozenset({408, 425, 429})
SUSPECT: Final = frozenset({401, 403, 404})
"""One such answer is about the event; many equal ones in a row are about the destination."""
TOO_MUCH: Final = frozenset({400, 413, 422})
"""On a batch these may be about one event of it."""


@dataclass(frozen=True, slots=True)
class Counters:
    """Of one delivery, the request that was just made included.

    Attributes:
        attempts: requests in all.
        local: of these, in this pass.
        age_s: since the first request of all, seconds.
        pass_age_s: since the first request of this pass, seconds.
        passes: trips through the retrier.
    """

    attempts: int
    local: int
    age_s: float
    pass_age_s: float
    passes: int


@dataclass(frozen=True, slots=True)
class Delivered:
    """The destination has it."""


@dataclass(frozen=True, slots=True)
class RetryLocally:
    """Send it again from here after so many seconds."""

    after_s: float


@dataclass(frozen=True, slots=True)
class HandOver:
    """To the retrier. `wait_s`: what the destination asked for, if it is more than the tier waits, seconds."""

    tier: Tier
    reason: str
    detail: str
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class Dead:
    """To the dead letters."""

    reason: str
    detail: str


@dataclass(frozen=True, slots=True)
class Halve:
    """Send the batch again as two."""


@dataclass(frozen=True, slots=True)
class Suspected:
    """A 401, 403 or 404: whether it is about the event or the destination, the next answers will tell."""

    status: int


Decision: TypeAlias = Delivered | RetryLocally | HandOver | Dead | Halve | Suspected


def recoverable(result: Answer | Silence, policy: Retry) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(result, Silence):
        return True
    status = result.status
    if status in policy.never:
        return False
    return status in policy.also or status in RECOVERABLE or 500 <= status < 600


def decide(
    result: Answer | Silence,
    policy: Retry,
    counters: Counters,
    tiers: Sequence[Tier],
    *,
    luck: float,
    batch: int = 1,
    local: bool = True,
) -> Decision:
    """What becomes of a delivery after a request.

    Args:
        result: of the request.
        policy: of the destination.
        counters: of the delivery; of a batch, the largest of each.
        tiers: ascending.
        luck: a random number from 0 to 1, for full jitter (AWS, "Exponential Backoff and Jitter", 2015).
        batch: events in the request.
        local: whether local retries are possible at all.
    """
    if isinstance(result, Answer):
        if 200 <= result.status < 300:
            return Delivered()
        if not recoverable(result, policy):
            return _refused(result.status, policy, batch)
    reason, detail = _told(result)
    if counters.attempts >= policy.max_attempts:
        return Dead("gave-up", f"{counters.attempts} requests were sent; the last one: {detail}")
    if counters.age_s >= policy.max_age:
        return Dead("gave-up", f"the first request was {counters.age_s:.0f} s ago; the last one: {detail}")
    wait_s = result.retry_after_s if isinstance(result, Answer) else None
    if local and counters.local < policy.local_attempts:
        after_s = luck * LOCAL_BASE_S * 2 ** (counters.local - 1) + (wait_s or 0.0)
        if counters.pass_age_s + after_s <= LOCAL_S:
            return RetryLocally(after_s)
    return hand_over(reason, detail, counters.passes, tiers, wait_s)


def hand_over(
    reason: str, detail: str, passes: int, tiers: Sequence[Tier], wait_s: float | None = None
) -> HandOver:
    """To the tier for this pass, or for the wait that the destination asked for, seconds."""
    if wait_s is None:
        return HandOver(tier_of.by_pass(passes, tiers), reason, detail)
    tier = tier_of.within(wait_s, tiers)
    return HandOver(tier, reason, detail, wait_s if wait_s > tier.delay_s else None)


def too_old(policy: Retry, age_s: float | None) -> Dead | None:
    """A delivery that is handed over without a request all the same ends `max_age` after its first request.

    Args:
        policy: of the destination.
        age_s: since the first request, seconds; None: there was none, so there is no age.
    """
    if age_s is None or age_s < policy.max_age:
        return None
    return Dead("gave-up", f"the first request was {age_s:.0f} s ago")


def _refused(status: int, policy: Retry, batch: int) -> Decision:
    if batch > 1 and status in TOO_MUCH:
        return Halve()
    if status in SUSPECT and status not in policy.never:
        return Suspected(status)
    return refused(status)


def refused(status: int) -> Dead:
    """The destination does not want this event."""
    what = "redirects, which are not followed" if 300 <= status < 400 else f"answers {status}"
    return Dead(f"status-{status}", f"the destination {what}")


def _told(result: Answer | Silence) -> tuple[str, str]:
    if isinstance(result, Answer):
        return result.reason, f"the destination answers {result.status}"
    return result.reason, result.detail
