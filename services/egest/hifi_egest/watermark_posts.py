"""Send the watermark to destinations that ask for it, beside the events of their pipes.

A watermark is no delivery: it has no receipt, and the next one says the same and more, so a failed request is not
repeated. It is sent by the instance that reads partition 0, and not while the destination accepts no events.
"""

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias, cast

from aiokafka import ConsumerRecord

from hifi.delivery.answer import Answer
from hifi.delivery.published_watermarks import PublishedWatermarks
from hifi.delivery.sender import SendableRequest, Sender, SendResult, SentRequest
from hifi.delivery.watermark_event import watermark_event
from hifi.kafka.partition_lease import PartitionLease
from hifi.runtime import log, metrics
from hifi.runtime.clock import MICROSECONDS, monotonic_s, now_us
from hifi.runtime.health import Health
from hifi.runtime.running import cancel
from hifi_egest.lanes.lane import Lane
from hifi_egest.lanes.lanes import Lanes

_CHECK_S: Final = 0.5
_UNSTATED_S: Final = 30.0
"""Time without a valid watermark of a destination that asks for it until that is shown, seconds."""
_UNSTATED: Final = "observe states no watermark of it, or egest has no right to read the topic watermarks"

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
        """Do nothing: watermarks are not counted."""


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
        self._is_leader = leads
        self._read_log = read_log
        self._health = health
        self._sent_s: dict[_Key, float] = {}
        """Time at which the last one was sent, monotonic seconds."""
        self._missing_since_s: dict[_Key, float] = {}
        """Time from which on there is no valid one, monotonic seconds."""
        self._sending: dict[_Key, asyncio.Task[None]] = {}
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
        asked_keys = set[_Key]()
        while True:
            await asyncio.sleep(_CHECK_S)
            asking_lanes = self._asking_lanes()
            for key in asked_keys - asking_lanes.keys():
                self._forget(key)
            asked_keys = set(asking_lanes)
            for key, lane in asking_lanes.items():
                try:
                    self._send_if_due(key, lane)
                except Exception as error:
                    logger.exception("watermark-failed", pipe=lane.pipe, destination=lane.destination.name)
                    self._health.warn(_subject(key), f"no watermark can be sent: {error}")

    def _asking_lanes(self) -> dict[_Key, Lane]:
        """The lanes whose destinations ask for watermarks, while this instance sends them."""
        if not self._is_leader():
            return {}
        return {
            (lane.pipe, lane.destination.name): lane
            for lane in self._lanes.opened()
            if lane.destination.watermark_interval_s() is not None
        }

    def _forget(self, key: _Key) -> None:
        """Forget a watermark that another instance sends now, or that is asked for no more."""
        self._sent_s.pop(key, None)
        self._missing_since_s.pop(key, None)
        self._health.warn(_subject(key), None)

    def _send_if_due(self, key: _Key, lane: Lane) -> None:
        self._watermarks.follow()
        interval_s, now_s = lane.destination.watermark_interval_s(), monotonic_s()
        assert interval_s is not None
        if key in self._sending or now_s - self._sent_s.get(key, now_s - interval_s) < interval_s:
            return
        statement = self._watermarks.statement(*key)
        if statement is None or not _is_valid(statement):
            if now_s - self._missing_since_s.setdefault(key, now_s) > _UNSTATED_S:
                self._health.warn(_subject(key), _UNSTATED)
            return
        self._missing_since_s.pop(key, None)
        if not lane.accepts:
            return
        record = watermark_event(self._stream, self._read_log(), statement)
        task = self._sending[key] = asyncio.create_task(self._send(key, lane, record))
        task.add_done_callback(lambda _: self._sending.pop(key))

    async def _send(self, key: _Key, lane: Lane, record: ConsumerRecord) -> None:
        # Only kinds that send by themselves have destinations that ask.
        sender = cast("Sender[SendableRequest]", lane.sender)
        started_s = monotonic_s()
        try:
            result = await sender.send(_WatermarkRequest(record, self._lease))
        except Exception:
            logger.exception("watermark-failed", pipe=lane.pipe, destination=lane.destination.name)
            problem = "an error of hifi, see the log"
        else:
            if result is None:
                return  # this instance has lost its partitions
            problem = _problem(result)
        self._sent_s[key] = started_s
        outcome = "failed" if problem else "sent"
        metrics.WATERMARKS_SENT.labels(lane.pipe, lane.destination.name, outcome).inc()
        reason = f"the last watermark was not accepted: {problem}" if problem else None
        self._health.warn(_subject(key), reason)


def _subject(key: _Key) -> str:
    return f"watermark of {key[0]}/{key[1]}"


def _is_valid(statement: Mapping[str, Any]) -> bool:
    return now_us() <= datetime.fromisoformat(statement["valid_until"]).timestamp() * MICROSECONDS


def _problem(result: SendResult) -> str:
    """The reason why a watermark was not accepted; empty: it was."""
    if not isinstance(result, SentRequest):
        return "it cannot be sent"
    if isinstance(result.result, Answer):
        return "" if 200 <= result.result.status < 300 else result.result.reason
    return f"{result.result.reason}: {result.result.detail}"
