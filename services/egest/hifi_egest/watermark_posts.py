"""Send the watermark to destinations that ask for it, beside the events of their pipes.

A watermark is no delivery: it has no receipt, and says nothing that a later one does not, so a failed request is not
repeated. It is sent by the instance that reads partition 0, and not while the destination accepts no events.
"""

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias, cast

from aiokafka import ConsumerRecord

from hifi.delivery.answer import Answer
from hifi.delivery.published_watermarks import PublishedWatermarks
from hifi.delivery.sender import SendableRequest, Sender, SentRequest, SplitBatch, Unsendable
from hifi.delivery.watermark_event import watermark_event
from hifi.runtime import log, metrics
from hifi.runtime.clock import monotonic_s, now_us
from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import Health
from hifi.runtime.running import cancel
from hifi_egest.delivery.lease import PartitionLease
from hifi_egest.lanes.lane import Lane
from hifi_egest.lanes.lanes import Lanes

_CHECK_S: Final = 0.5
_UNSTATED_S: Final = 30.0
"""Time without a watermark of a destination that asks for it until that is shown, seconds."""

_Key: TypeAlias = tuple[str, str]

logger = log.get(__name__)


class _WatermarkRequest:
    """One watermark as the request of a sender."""

    active = True

    def __init__(self, record: ConsumerRecord, lease: PartitionLease) -> None:
        self._record = record
        self.may_send = lease.held

    def records(self) -> list[ConsumerRecord]:
        return [self._record]

    def count_attempt(self, started_s: float, started_us: int) -> None:
        """Nothing counts them."""


class WatermarkPosts:
    """Sends watermarks at the intervals that destinations declare.

    Args:
        stream: name.
        lanes: started.
        watermarks: that observe publishes.
        lease: of this instance.
        leads: whether this instance is the one that sends them.
        read_log: identity of the stream's log; raises `Misconfigured` where Kafka does not say it.
        health: shows destinations to which they cannot be sent.
    """

    def __init__(
        self,
        stream: str,
        lanes: Lanes,
        watermarks: PublishedWatermarks,
        lease: PartitionLease,
        leads: Callable[[], bool],
        read_log: Callable[[], str],
        health: Health,
    ) -> None:
        self._stream = stream
        self._lanes = lanes
        self._watermarks = watermarks
        self._lease = lease
        self._leads = leads
        self._read_log = read_log
        self._health = health
        self._next_s: dict[_Key, float] = {}
        """When the next one is due, monotonic seconds."""
        self._asked_s: dict[_Key, float] = {}
        """Since when each destination has asked without a watermark to send, monotonic seconds."""
        self._sending: dict[_Key, asyncio.Task[None]] = {}
        self._warned: set[str] = set()
        self.task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Begin to send."""
        self.task = asyncio.create_task(self._run())

    async def stop(self) -> None:
        """Stop, also requests in flight."""
        await cancel(self.task)
        for task in list(self._sending.values()):
            await cancel(task)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_S)
            asking = self._asking()
            for subject in self._warned - {_subject(lane) for lane in asking}:
                self._warn(subject, None)
            for lane in asking:
                self._watermarks.follow()
                self._send_if_due(lane)

    def _asking(self) -> list[Lane]:
        """The lanes whose destinations ask for watermarks, while this instance sends them."""
        if not self._leads():
            return []
        return [lane for lane in self._lanes.opened() if lane.destination.watermark_interval_s() is not None]

    def _send_if_due(self, lane: Lane) -> None:
        key, now_s = (lane.pipe, lane.destination.name), monotonic_s()
        if key in self._sending or now_s < self._next_s.get(key, 0):
            return
        statement = self._watermarks.statement(*key)
        if statement is None:
            if now_s - self._asked_s.setdefault(key, now_s) > _UNSTATED_S:
                reason = "no watermark was read: observe must run, and egest may read the topic watermarks"
                self._warn(_subject(lane), reason)
            return
        self._asked_s.pop(key, None)
        if not lane.accepts:
            return
        try:
            record = watermark_event(self._stream, self._read_log(), statement, now_us())
        except Misconfigured as error:
            self._warn(_subject(lane), str(error))
            return
        interval_s = lane.destination.watermark_interval_s()
        assert interval_s is not None
        self._next_s[key] = now_s + interval_s
        task = self._sending[key] = asyncio.create_task(self._send(lane, record))
        task.add_done_callback(lambda _: self._sending.pop(key))

    async def _send(self, lane: Lane, record: ConsumerRecord) -> None:
        # Only kinds that send by themselves have destinations that ask.
        sender = cast("Sender[SendableRequest]", lane.senders.current)
        try:
            result = await sender.send(_WatermarkRequest(record, self._lease))
            if result is None:
                return  # this instance has lost its partitions
            problem = _problem(result)
        except Exception:
            logger.exception("watermark-failed", pipe=lane.pipe, destination=lane.destination.name)
            problem = "an error of hifi, see the log"
        outcome = "failed" if problem else "sent"
        metrics.WATERMARKS_SENT.labels(lane.pipe, lane.destination.name, outcome).inc()
        self._warn(_subject(lane), f"the last watermark was not accepted: {problem}" if problem else None)

    def _warn(self, subject: str, reason: str | None) -> None:
        self._health.warn(subject, reason)
        if reason is None:
            self._warned.discard(subject)
        else:
            self._warned.add(subject)


def _subject(lane: Lane) -> str:
    return f"watermark of {lane.pipe}/{lane.destination.name}"


def _problem(result: SentRequest | Unsendable | SplitBatch) -> str:
    """Why a watermark was not accepted; empty: it was."""
    if isinstance(result, SentRequest):
        if isinstance(result.result, Answer):
            return "" if 200 <= result.result.status < 300 else result.result.reason
        return f"{result.result.reason}: {result.result.detail}"
    if isinstance(result, SplitBatch):
        return "it is too large"
    return "; ".join(why.detail for _, why in result.rejected)
