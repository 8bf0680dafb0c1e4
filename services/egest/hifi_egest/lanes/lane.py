"""A lane: all that goes to one destination of one pipe, apart from all others.

Its own queue, concurrency, rate, time-out, breaker and connections; when it is slow or dead, only its own deliveries
notice. What cannot go soon goes to the retrier.
"""

import asyncio
import math
import ssl
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hifi import log, metrics
from hifi.clock import MICROSECONDS, monotonic_s, now_us
from hifi.errors import Rejected
from hifi.health import Health
from hifi.pipe.destination_request import Binding, target
from hifi.pipe.model import Destination
from hifi.topics import Tier
from hifi_egest.delivery.delivery import Delivery, Place
from hifi_egest.delivery.lease import Lease
from hifi_egest.delivery.outbound_request import Job
from hifi_egest.delivery.partition import Held, Partition
from hifi_egest.http.credentials import Equipment
from hifi_egest.http.pool import Pool
from hifi_egest.lanes.destination_health import Judge, Refusal
from hifi_egest.lanes.queue import Queue
from hifi_egest.policy.admission import Flow
from hifi_egest.policy.answer import Answer
from hifi_egest.policy.breaker import Permit, State
from hifi_egest.policy.outcome import Dead, HandOver
from hifi_egest.policy.rate_limit import Bucket
from hifi_egest.receipts.outcome_recorder import UNSENT, Exchange, Settler
from hifi_egest.settings import EgestSettings

_GATE_S: Final = 0.1
"""A lane that may not send looks again after this, seconds."""
_LEAST_RATE: Final = 0.01
_ENVELOPE_BYTES: Final = 256
"""About what the attributes of an event take in a batch."""
FAILED: Final = Dead("egest-failed", "egest failed on this event; its log says how")

logger = log.get(__name__)


@dataclass(frozen=True)
class Tools:
    """What all lanes share."""

    settings: EgestSettings
    tiers: Sequence[Tier]
    settler: Settler
    lease: Lease
    held: Held
    health: Health
    tls: ssl.SSLContext


def deleted(pipe: str, destination: str) -> Dead:
    """The pipe or the destination is no more."""
    return Dead(
        "pipe-deleted", f"the pipe {pipe} has no destination {destination} any more; declare it, then replay"
    )


class Lane:
    """See the module."""

    def __init__(self, pipe: str, destination: Destination, tools: Tools, share: float) -> None:
        """Open the lane; nothing is sent before something is offered.

        Args:
            pipe: name.
            destination: as declared.
            tools: shared by all lanes.
            share: of the destination's rate that this instance may use, from 0 to 1.
        """
        self.pipe = pipe
        self._tools = tools
        self._loop = asyncio.get_running_loop()
        self._queue = Queue(ordered=destination.ordered == "key")
        self._jobs: deque[Job] = deque()
        self._sleeping: dict[Job, asyncio.TimerHandle] = {}
        self._running = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._wake: asyncio.Handle | None = None
        self._wake_s = math.inf
        """When it looks again, of the loop's clock."""
        self._unrecorded = 0
        self._events = 0
        self._bytes = 0
        self._share = share
        self._retired = False
        self._room = asyncio.Event()
        self.offered_s = monotonic_s()
        """When the lane was last given a delivery, monotonic."""
        labels = pipe, destination.name
        self._answer_seconds = metrics.ANSWERS.labels(*labels)
        self._delivery_seconds = metrics.DELIVERY_SECONDS.labels(*labels)
        self._delivered = metrics.OUTCOMES.labels(*labels, "delivered")
        self._gauge = metrics.LANE_EVENTS.labels(*labels)
        self._about = {"pipe": pipe, "destination": destination.name}
        instance = tools.settings.instance
        self._breaker_said = {state: f"{state.value}:{instance}".encode() for state in State}
        self._configure(destination)

    def _configure(self, destination: Destination) -> None:
        settings = self._tools.settings
        self.destination = destination
        self._judge = Judge(self.pipe, destination, self._tools.tiers, settings.send_within_s, self)
        at_a_time = destination.concurrency * (destination.batch.size if destination.batch else 1)
        self._flow = Flow(monotonic_s(), at_a_time, destination.rate or math.inf)
        self._bucket = Bucket(1.0) if destination.rate is not None else None
        self.share(self._share)
        scheme, host, port, _ = target(destination)
        self._pool = Pool(host, port, self._tools.tls if scheme == "https" else None, destination.concurrency)
        self._equipment = Equipment(
            self.pipe, destination, settings.secrets_refresh_s, self._tools.health, self._equipped
        )

    def share(self, share: float) -> None:
        """The share of the destination's rate that this instance may use changed."""
        self._share = share
        if self._bucket is not None and self.destination.rate is not None:
            self._bucket.set_rate(max(self.destination.rate * share, _LEAST_RATE))

    async def replace(self, destination: Destination) -> None:
        """A new version of the pipe declares the destination anew. What is queued goes by the new one."""
        if destination == self.destination:
            return
        self._pool.close()
        await self._equipment.stop()
        ordered = destination.ordered == "key"
        if ordered != (self.destination.ordered == "key"):
            queue, self._queue = self._queue, Queue(ordered=ordered)
            for delivery in queue.all():
                delivery.place = Place.QUEUED
                self._queue.add(delivery, monotonic_s())
        # No await from here on: nobody asks the old judge again what it still holds.
        self._judge.let_go()
        ever_open = self._judge.ever_open
        self._configure(destination)
        self._judge.ever_open = ever_open
        self.pump()

    async def retire(self) -> None:
        """The destination is no more: what waits becomes dead letters, what is running finishes."""
        self._retired = True
        self._judge.retire()
        for delivery in self._waiting():
            self.put_away(delivery, deleted(self.pipe, self.destination.name), UNSENT)
        self._gauge.set(0)
        self._pool.close()
        await self._equipment.stop()

    # Coming in

    def fits(self, size_bytes: int, *, retried: bool) -> bool:
        """Whether there is room for one more. Retried deliveries get half of it: fresh ones always find some."""
        settings, held = self._tools.settings, self._tools.held
        # No lane gets more than is free, so many slow ones leave room for the next (dynamic thresholds: Choudhury
        # and Hahne, 1998).
        events = min(settings.lane_events, held.free_events)
        if retried and self._queue.retried * 2 >= events:
            return False
        return self._events < events and (
            not self._events or self._bytes + size_bytes <= min(settings.lane_bytes, held.free_bytes)
        )

    def may_wait(self, *, alone: bool, saturated: bool) -> bool:
        """Whether what does not fit should wait a moment rather than go to the retrier; see `Flow`."""
        now_s = monotonic_s()
        if self._refusal(now_s) is not None:
            return False
        return self._flow.may_wait(self._events, now_s, alone=alone, saturated=saturated)

    async def room(self, within_s: float) -> None:
        """Wait until something left the lane, or so many seconds have passed."""
        began_s = monotonic_s()
        self._room.clear()
        timer = self._loop.call_later(within_s, self._room.set)
        await self._room.wait()
        timer.cancel()
        now_s = monotonic_s()
        self._flow.waited(now_s - began_s, now_s)

    def offer(self, delivery: Delivery) -> None:
        """Take a delivery: to send it, or to hand it over at once."""
        now_s = self.offered_s = monotonic_s()
        delivery.lane = self
        refusal = self._refusal(now_s)
        if refusal is not None:
            self._refuse(delivery, refusal, now_s)
            return
        if not self._events:
            self._flow.begins(now_s)
        self._events += 1
        self._bytes += delivery.event.size_bytes
        self._queue.add(delivery, now_s)
        try:
            self.pump()
        except Exception:  # the delivery is queued: whoever offers it again would have it sent twice
            logger.exception("lane-failed", **self._about)

    def overflow(self, delivery: Delivery, refusal: Refusal) -> None:
        """Hand over a delivery that the lane does not take."""
        now_s = self.offered_s = monotonic_s()
        delivery.lane = self
        self._refuse(delivery, refusal, now_s)

    def recorded(self) -> None:
        """An outcome of the lane is on record."""
        self._unrecorded -= 1

    def drop(self, partition: Partition) -> None:
        """A partition is given up: leave what was not begun, hand over what waits for a local retry."""
        for delivery in self._queue.of(partition):
            self._out(delivery)
            delivery.left()
        for job in [job for job in self._sleeping if not job.live]:
            self._sleeping.pop(job).cancel()
            self._give_up(job)
        for job in [job for job in self._jobs if not job.live]:
            self._jobs.remove(job)
            self._give_up(job)
        self._judge.let_go()

    def sweep(self) -> None:
        """Now and then: hand over what waits for too long, close old connections, show what there is."""
        now_s = monotonic_s()
        within_s = self._tools.settings.send_within_s
        for delivery in self._queue.late(now_s - within_s):
            self._out(delivery)
            self._refuse(
                delivery, Refusal("not-in-time", f"the lane did not get to it within {within_s:g} s"), now_s
            )
        self._pool.sweep()
        self._gauge.set(self._events)
        self.pump()

    @property
    def starves(self) -> bool:
        """It could send more at once if it had more."""
        return not self._queue and self._running < self.destination.concurrency

    # Going out

    def pump(self) -> None:
        """Send whatever may be sent."""
        while self._running < self.destination.concurrency:
            job = self._next()
            if job is None:
                return
            self._running += 1
            task = self._loop.create_task(self._work(job))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _work(self, job: Job | None) -> None:
        while job is not None:
            try:
                await self._attempt(job)
            except Exception:
                logger.exception("attempt-failed", **self._about)
                self._judge.unsent(job)
                for delivery in job.deliveries:
                    if delivery.place is Place.TAKEN:
                        self.put_away(delivery, FAILED, UNSENT)
                self.close(job)
            job = self._next()
        self._running -= (
            1  # not when the task is done: an offer in between would find no worker and start none
        )

    def _next(self) -> Job | None:
        if not self._jobs and not self._queue.ready:
            return None
        now_s = monotonic_s()
        wait_s = self._gate_s(now_s)
        if wait_s > 0:
            self._wake_in(wait_s)
            return None
        permit = self._judge.permit(now_s)
        if permit is Permit.NO:
            self.shed()
            return None
        job = self._jobs.popleft() if self._jobs else self._assemble()
        job.permit = permit
        if self._bucket is not None:
            self._bucket.take(now_s)
        return job

    def _gate_s(self, now_s: float) -> float:
        """Seconds until the next request may be sent, as far as is known; 0: now."""
        if self._equipment.binding is None or not self._tools.lease.held():
            return _GATE_S
        if self._unrecorded >= self._tools.settings.unacknowledged:
            return _GATE_S
        if now_s < self._judge.paused_s:
            return self._judge.paused_s - now_s
        batch = self.destination.batch
        if batch is not None and not self._jobs and self._queue.leaders < batch.size:
            wait_s = self._queue.waiting_since_s + batch.wait - now_s
            if wait_s > 0:
                return wait_s
        return self._bucket.wait_s(now_s) if self._bucket is not None else 0.0

    def _assemble(self) -> Job:
        first = self._queue.take()
        assert first is not None
        batch = self.destination.batch
        if batch is None:
            return Job([first], [first.key] if first.key is not None else [], self._tools.lease)
        deliveries, leader = [first], first
        keys = [first.key] if first.key is not None else []
        size = 0
        while len(deliveries) < batch.size:
            size += len(deliveries[-1].event.record.value or b"") + _ENVELOPE_BYTES
            if size >= batch.bytes:
                break
            delivery = self._queue.follower(leader)
            if delivery is None:
                delivery = self._queue.take()
                if delivery is None:
                    break
                leader = delivery
                if delivery.key is not None:
                    keys.append(delivery.key)
            deliveries.append(delivery)
        return Job(deliveries, keys, self._tools.lease)

    async def _attempt(self, job: Job) -> None:
        """One request, and what comes of it."""
        assert self._equipment.binding is not None
        data = self._request(job, self._equipment.binding)
        if data is None:
            self._judge.unsent(job)
            return
        began_s, began_us = monotonic_s(), now_us()
        result, sent_us = await self._pool.exchange(data, self.destination.timeout, job.may_send)
        if result is None:
            self._judge.unsent(job)
            if job.live:
                self._jobs.appendleft(job)  # until the lease is held again
            else:
                self._give_up(job)
            return
        for delivery in job.deliveries:
            delivery.attempts += 1
            delivery.local += 1
            if delivery.local == 1:
                delivery.pass_began_s = began_s
            if not delivery.first_us:
                delivery.first_us = began_us
        now_s = monotonic_s()
        if not isinstance(result, Answer):
            self._judge.failed(job, result, Exchange(sent_us), now_s)
            return
        exchange = Exchange(sent_us, result.status, result.answered_us)
        self._answer_seconds.observe(max(0, result.answered_us - sent_us) / MICROSECONDS)
        if not 200 <= result.status < 300:
            self._judge.failed(job, result, exchange, now_s)
            return
        self._judge.good(job, now_s)
        self._flow.sent(len(job.deliveries), now_s - began_s, now_s)
        self._delivered.inc(len(job.deliveries))
        for delivery in job.deliveries:
            self._delivery_seconds.observe(
                max(0, result.answered_us - delivery.event.accepted_us) / MICROSECONDS
            )
            self._decided(delivery)
            self._tools.settler.delivered(delivery, exchange)
        self.close(job)

    def _request(self, job: Job, binding: Binding) -> bytes | None:
        """The bytes to send, without the deliveries that have no form; None where none is left, or too much."""
        if not job.live:
            self._give_up(job)
            return None
        parts, kept = [], []
        for delivery in job.deliveries:
            try:
                parts.append(binding.part(delivery.event.record))
                kept.append(delivery)
            except Rejected as why:
                self.put_away(delivery, Dead(why.reason, why.detail), UNSENT)
        job.deliveries = kept
        batch = self.destination.batch
        if batch is not None and len(parts) > 1 and sum(map(len, parts)) > batch.bytes:
            self.again(job.halves(), 0.0)
            return None
        if kept:
            try:
                return binding.request([delivery.event.record for delivery in kept], parts, now_us())
            except Rejected as why:
                for delivery in kept:
                    self.put_away(delivery, Dead(why.reason, why.detail), UNSENT)
        self.close(job)
        return None

    # What the judge asks for

    def again(self, job: Job, after_s: float) -> None:
        """Send it once more after so many seconds; its keys stay busy."""
        if after_s <= 0:
            self._jobs.appendleft(job)
        else:
            self._sleeping[job] = self._loop.call_later(after_s, self._awake, job)

    def close(self, job: Job) -> None:
        """It is decided: its keys are free, what was to follow it may go."""
        if job.then is not None:
            self._jobs.appendleft(job.then)
        for key in job.keys:
            self._queue.release(key)

    def shed(self) -> None:
        """Hand over all that waits."""
        now_s = monotonic_s()
        refusal = self._refusal(now_s)
        if refusal is not None:
            for delivery in self._waiting():
                self._refuse(delivery, refusal, now_s)

    def put_away(self, delivery: Delivery, what: HandOver | Dead, exchange: Exchange) -> None:
        """To the retrier or to the dead letters."""
        self._decided(delivery)
        if isinstance(what, HandOver):
            self._tools.settler.hand_over(delivery, what, exchange)
        else:
            self._tools.settler.dead(delivery, what, exchange)

    def look_in(self, seconds: float) -> None:
        """Let the judge look after so many seconds whether it still holds something."""
        self._loop.call_later(seconds, self._judge_overdue)

    def _judge_overdue(self) -> None:
        self._judge.overdue(monotonic_s())

    # Bookkeeping

    def _refusal(self, now_s: float) -> Refusal | None:
        if self._retired:
            return Refusal("pipe-deleted", "the destination is no more")
        if self._equipment.missing:
            return Refusal("unusable", self._equipment.missing)
        return self._judge.refusal(now_s)

    def _refuse(self, delivery: Delivery, refusal: Refusal, now_s: float) -> None:
        self.put_away(delivery, self._judge.hand_over(delivery, refusal, now_s), UNSENT)

    def _decided(self, delivery: Delivery) -> None:
        if delivery.place is Place.TAKEN:
            self._out(delivery)
        delivery.place = Place.DECIDED
        if self._judge.ever_open:
            delivery.breaker = self._breaker_said[self._judge.breaker]
        self._unrecorded += 1

    def _out(self, delivery: Delivery) -> None:
        self._events -= 1
        self._bytes -= delivery.event.size_bytes
        self._room.set()

    def _waiting(self) -> list[Delivery]:
        """Take out all that waits and is not being sent."""
        queued = self._queue.all()
        for delivery in queued:
            self._out(delivery)
        jobs = list(self._jobs)
        self._jobs.clear()
        for job in jobs:
            last = job
            while last.then is not None:
                queued += last.deliveries
                last = last.then
            queued += last.deliveries
            for key in last.keys:
                self._queue.release(key)
        return queued

    def _give_up(self, job: Job) -> None:
        """A partition of a job is given up: what was sent is handed over, what was not is left, the rest goes again."""
        kept: list[Delivery] = []
        for delivery in job.deliveries:
            if delivery.event.partition.work.active:
                kept.append(delivery)
            elif delivery.local:
                now_s = monotonic_s()
                self._refuse(
                    delivery, Refusal("handed-on", "the instance that sent it gave its partition up"), now_s
                )
            else:
                self._out(delivery)
                delivery.left()
        job.deliveries = kept
        if kept:
            self._jobs.appendleft(job)
        else:
            self.close(job)

    def _awake(self, job: Job) -> None:
        del self._sleeping[job]
        self._jobs.append(job)
        self.shed()
        self.pump()

    def _equipped(self) -> None:
        if self._equipment.missing:
            self.shed()
        self.pump()

    def _wake_in(self, seconds: float) -> None:
        at_s = self._loop.time() + max(seconds, 0.001)
        if self._wake is not None:
            # uvloop gives a handle without a time when the moment has come already.
            if self._wake_s <= at_s:
                return
            self._wake.cancel()
        self._wake, self._wake_s = self._loop.call_at(at_s, self._woken), at_s

    def _woken(self) -> None:
        self._wake, self._wake_s = None, math.inf
        self.pump()
