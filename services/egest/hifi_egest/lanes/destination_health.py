"""How a destination does, as its answers tell: breaker, pause, streak; and what each request comes to."""

import random
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

from hifi import log, metrics
from hifi.clock import MICROSECONDS, now_us
from hifi.pipe.model import Destination
from hifi.topics import Tier
from hifi_egest.delivery.delivery import Delivery
from hifi_egest.delivery.outbound_request import Job
from hifi_egest.policy import outcome
from hifi_egest.policy.answer import Answer, Silence
from hifi_egest.policy.breaker import Breaker, Permit, State
from hifi_egest.policy.outcome import Counters, Dead, Halve, HandOver, RetryLocally, Suspected
from hifi_egest.policy.streak import HOLD_S, Streak
from hifi_egest.receipts.outcome_recorder import Exchange

PAUSED: Final = frozenset({429, 503})
"""A `Retry-After` with one of these is about the destination as a whole, not about the one event."""

logger = log.get(__name__)


class Refusal(NamedTuple):
    """Why nothing should be queued now. `wait_s`: what the destination asked for, seconds."""

    reason: str
    detail: str
    wait_s: float | None = None


class Jobs(Protocol):
    """What a judge asks of its lane."""

    def again(self, job: Job, after_s: float) -> None:
        """Send it once more after so many seconds; its keys stay busy."""

    def close(self, job: Job) -> None:
        """It is decided: its keys are free, what was to follow it may go."""

    def shed(self) -> None:
        """Hand over all that waits."""

    def put_away(self, delivery: Delivery, what: HandOver | Dead, exchange: Exchange) -> None:
        """To the retrier or to the dead letters."""

    def look_in(self, seconds: float) -> None:
        """Call `overdue` after so many seconds."""


class Judge:
    """Of one lane."""

    def __init__(
        self, pipe: str, destination: Destination, tiers: Sequence[Tier], within_s: float, jobs: Jobs
    ) -> None:
        """Begin with a destination of which nothing bad is known.

        Args:
            pipe: name.
            destination: as declared.
            tiers: of the retrier, ascending.
            within_s: a pause beyond this is not waited for, seconds.
            jobs: the lane.
        """
        self._policy = destination.retry
        self._tiers = tiers
        self._within_s = within_s
        self._jobs = jobs
        self._breaker = Breaker(destination.breaker.failures, destination.breaker.probe)
        self._streak: Streak[tuple[Job, Exchange]] = Streak(destination.breaker.failures)
        self.paused_s = 0.0
        """Until when the destination wants nothing, monotonic."""
        self.ever_open = False
        """The breaker, or one before it of the same lane, was open: receipts say how it is from then on."""
        self._looking = False
        self._about = {"pipe": pipe, "destination": destination.name}
        self._labels = pipe, destination.name
        self._gauge = metrics.BREAKER_OPEN.labels(*self._labels)
        self._gauge.set(0)

    # Before a request

    def refusal(self, now_s: float) -> Refusal | None:
        """Why a delivery need not queue up, if so."""
        if self._breaker.state is not State.CLOSED and self._breaker.refuses(now_s):
            return Refusal("breaker-open", "the destination keeps failing; its circuit breaker is open")
        if self.paused_s > now_s and self.paused_s - now_s > self._within_s:
            return Refusal("paused", "the destination asked for a pause", self.paused_s - now_s)
        return None

    @property
    def breaker(self) -> State:
        """Of the breaker, now."""
        return self._breaker.state

    def permit(self, now_s: float) -> Permit:
        """The breaker's leave for a request."""
        return self._breaker.permit(now_s)

    def unsent(self, job: Job) -> None:
        """The job had its permit and was not sent after all."""
        self._breaker.forgo(job.permit)

    # After it

    def good(self, job: Job, now_s: float) -> None:
        """It was delivered."""
        self._breaker_told(job, ok=True, now_s=now_s)
        self._other_answer()

    def failed(self, job: Job, result: Answer | Silence, exchange: Exchange, now_s: float) -> None:
        """It was not. Every delivery of the job is decided here, or sent again by the lane."""
        deliveries = job.deliveries
        self._flag(job, result)
        all_counters = [counters(delivery, now_s) for delivery in deliveries]
        worst = Counters(
            max(one.attempts for one in all_counters),
            max(one.local for one in all_counters),
            max(one.age_s for one in all_counters),
            max(one.pass_age_s for one in all_counters),
            max(one.passes for one in all_counters),
        )
        decision = outcome.decide(
            result,
            self._policy,
            worst,
            self._tiers,
            luck=random.random(),
            batch=len(deliveries),
            local=job.live,
        )
        if isinstance(decision, Suspected):
            self._suspected(job, decision.status, exchange, now_s)
            return
        if isinstance(result, Answer):
            self._other_answer()
        again = outcome.recoverable(result, self._policy)
        self._breaker_told(job, ok=not again, now_s=now_s)
        if again and isinstance(result, Answer) and result.status in PAUSED and result.retry_after_s:
            self._pause(result.retry_after_s, now_s)
        if isinstance(decision, RetryLocally) and self.refusal(now_s) is None:
            self._jobs.again(job, decision.after_s)
        elif isinstance(decision, Halve):
            self._jobs.again(job.halves(), 0.0)
        else:
            for delivery, its in zip(deliveries, all_counters, strict=True):
                what = outcome.decide(result, self._policy, its, self._tiers, luck=0.0, local=False)
                assert isinstance(what, HandOver | Dead)
                self._jobs.put_away(delivery, what, exchange)
            self._jobs.close(job)

    def overdue(self, now_s: float) -> None:
        """Those that were held for long enough after a 401, 403 or 404 are dead letters."""
        self._looking = False
        self._their_own_fault(self._streak.overdue(now_s))
        self._look_in()

    def let_go(self) -> None:
        """Hold nothing any longer: what is undecided is tried again later."""
        self._destinations_fault(self._streak.release())

    def retire(self) -> None:
        """The destination is no more: hold nothing, and show no breaker, whatever its last requests come to."""
        self.let_go()
        metrics.BREAKER_OPEN.remove(*self._labels)  # a 0 would become a 1 again with a late failure

    def hand_over(self, delivery: Delivery, refusal: Refusal, now_s: float) -> HandOver | Dead:
        """What becomes of a delivery for which no request is made."""
        age_s = counters(delivery, now_s).age_s if delivery.first_us else None
        return outcome.too_old(self._policy, age_s) or outcome.hand_over(
            refusal.reason, refusal.detail, delivery.passes, self._tiers, refusal.wait_s
        )

    def _suspected(self, job: Job, status: int, exchange: Exchange, now_s: float) -> None:
        if job.permit is Permit.PROBE:
            self._breaker_told(job, ok=False, now_s=now_s)
            self._destinations_fault([(job, exchange)])
        else:
            own_fault, destinations_fault = self._streak.refused((job, exchange), status, now_s)
            self._their_own_fault(own_fault)
            if destinations_fault:
                self._breaker.trip(now_s)  # first: their receipts say that it is open
                self.ever_open = True
                self._destinations_fault(destinations_fault)
                self._opened(f"{status} again and again")
            self._look_in()
        self._jobs.close(job)

    def _look_in(self) -> None:
        if self._streak.holding and not self._looking:
            self._looking = True
            self._jobs.look_in(HOLD_S / 4)

    def _other_answer(self) -> None:
        if self._streak.status:
            self._their_own_fault(self._streak.broken())

    def _their_own_fault(self, held: Sequence[tuple[Job, Exchange]]) -> None:
        for job, exchange in held:
            for delivery in job.deliveries:
                self._jobs.put_away(delivery, outcome.refused(exchange.status), exchange)

    def _destinations_fault(self, held: Sequence[tuple[Job, Exchange]]) -> None:
        for job, exchange in held:
            reason, detail = (
                f"status-{exchange.status}",
                f"the destination answers {exchange.status} to everything",
            )
            for delivery in job.deliveries:
                what = outcome.hand_over(reason, detail, delivery.passes, self._tiers)
                self._jobs.put_away(delivery, what, exchange)

    def _breaker_told(self, job: Job, *, ok: bool, now_s: float) -> None:
        before = self._breaker.state
        self._breaker.result(job.permit, ok=ok, now_s=now_s)
        if before is self._breaker.state:
            return
        if self._breaker.state is State.OPEN and before is State.CLOSED:
            self._opened("failures in a row")
        elif self._breaker.state is State.CLOSED:
            self._gauge.set(0)
            logger.info("breaker-closed", **self._about)

    def _opened(self, why: str) -> None:
        self.ever_open = True
        self._gauge.set(1)
        logger.warning("breaker-opened", why=why, **self._about)
        self._jobs.shed()

    def _pause(self, wait_s: float, now_s: float) -> None:
        self.paused_s = max(self.paused_s, now_s + wait_s)
        if wait_s > self._within_s:
            logger.info("destination-paused", seconds=wait_s, **self._about)
            self._jobs.shed()

    def _flag(self, job: Job, result: Answer | Silence) -> None:
        if not isinstance(result, Silence) or not result.ambiguous:
            return
        for delivery in job.deliveries:
            delivery.ambiguous += 1
        # Whoever finds one of these twice at the destination finds the reason here.
        logger.info(
            "ambiguous",
            reason=result.reason,
            seqs=[delivery.event.seq for delivery in job.deliveries],
            **self._about,
        )


def counters(delivery: Delivery, now_s: float) -> Counters:
    """Of a delivery now."""
    age_s = (now_us() - delivery.first_us) / MICROSECONDS if delivery.first_us else 0.0
    return Counters(
        delivery.attempts, delivery.local, max(0.0, age_s), now_s - delivery.pass_began_s, delivery.passes
    )
