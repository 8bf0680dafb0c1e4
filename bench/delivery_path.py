"""Counts the calls that a record passes in egest, from its parsing to its receipt.

    HIFI_COMPILED=0 .venv/bin/python bench/delivery_path.py      # prints each call, then their number

Counted is each call of a function or constructor of egest or of libs/hifi that is given the record or returns it, in
one of its forms (Kafka record, event, delivery, outbound request, receipt) or a list of these. Not counted are logs,
metrics, comprehensions, the sender of the destination, and calls that only get a number or a name, such as those that
ask the circuit breaker. The path begins where the batch is parsed, and ends where the producer is given the receipt.
One delivery is profiled after two others, so that partition and lane are in use.
"""

import asyncio
import sys
from types import FrameType, SimpleNamespace
from typing import Any, Final

from aiokafka import ConsumerRecord, TopicPartition

from hifi.delivery.answer import Answer
from hifi.delivery.attempt import Attempt
from hifi.delivery.destination_state import DestinationStates
from hifi.delivery.sender import SentRequest
from hifi.kafka.consumer import AssignedPartition
from hifi.kafka.partition_lease import PartitionLease
from hifi.kafka.topics import Topics
from hifi.pipe.model import Pipe
from hifi.record.fields import packed
from hifi.record.headers import ACCEPTED, IN, MINUTE, PIPE, RAW, REVISION, REVISION_OFFSET, SEQ, TIME, TO
from hifi.record.identity import seq_text
from hifi.record.record import Record
from hifi.runtime.health import Health
from hifi_egest.dedup.outcome_reader import RecordedOutcomes
from hifi_egest.delivery import delivery
from hifi_egest.delivery.memory_bounds import InFlightBudget
from hifi_egest.intake import DeliveryIntake
from hifi_egest.lanes.lanes import Lanes
from hifi_egest.lanes.resources import LaneResources
from hifi_egest.outcomes.recorder import Outbox, OutcomeRecorder
from hifi_egest.settings import EgestSettings

TOPICS: Final = Topics("s")
FORMS: Final = (ConsumerRecord, delivery.EventRecord, delivery.Delivery, delivery.OutboundRequest, Record)
PARSING: Final = "hifi_egest.delivery.parsing"
NOT_COUNTED: Final = ("hifi.runtime.log", "hifi.runtime.metrics")
PIPE_DECLARATION: Final = Pipe.model_validate(
    {
        "pipe": "flights",
        "source": {"keys": [{"sha256": "0" * 64}]},
        "destinations": [{"name": "d", "url": "http://destination.example"}],
    }
)


class OneLog:
    """A stream whose log has one identity."""

    async def identity_at(self, _: AssignedPartition) -> str:
        return ""


class AcceptingSender:
    """A destination that answers 200 at once."""

    ready = True
    missing = ""

    async def send(self, _: object) -> SentRequest:
        return SentRequest(Answer(200), Attempt(1, 200, 2), 0.1, 0.0)


class SilentProducer:
    """Takes receipts, and acknowledges none."""

    def __init__(self) -> None:
        self.sent = asyncio.Event()

    def send(self, *_: object) -> Any:
        self.sent.set()
        return SimpleNamespace(acknowledged=asyncio.get_running_loop().create_future())


class EmptyReader:
    """No earlier outcomes."""

    def floors(self, _: int) -> dict[str, int]:
        return {}

    async def read(self, *_: object) -> RecordedOutcomes:
        return RecordedOutcomes()


class FreshMember:
    """Its heartbeats are always recent."""

    last_heartbeat_monotonic_s = float("inf")


class PublishedPipe:
    """The registry of one pipe."""

    offset = 1
    holds_pipes = False

    def in_use(self) -> list[Any]:
        return [SimpleNamespace(pipe=PIPE_DECLARATION, current=True, number=1)]

    def destination(self, _: str, name: str) -> Any:
        return PIPE_DECLARATION.destination(name)

    def unreadable(self, *_: object) -> None:
        return None


class CallProfile:
    """The calls that are given a record or return it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self._frames: list[FrameType] = []

    def __call__(self, frame: FrameType, event: str, result: object) -> None:
        module, code = frame.f_globals.get("__name__", ""), frame.f_code
        if not module.startswith(("hifi.", "hifi_egest.")) or module.startswith(NOT_COUNTED):
            return
        if code.co_name.startswith("<") or frame in self._frames:
            return
        parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        given = event == "call" and any(has_record(frame.f_locals.get(name)) for name in parameters)
        if given or (event == "return" and has_record(result)):
            self._frames.append(frame)
            self.calls.append((module, code.co_qualname))


def has_record(value: object) -> bool:
    """Whether a value is a form of the record, or a list or tuple of such."""
    if isinstance(value, FORMS):
        return True
    return isinstance(value, list | tuple) and any(has_record(element) for element in value)


def enriched(offset: int) -> ConsumerRecord:
    """An event as enrich writes it."""
    headers = {
        TIME: b"2026-11-28T12:00:00Z",
        PIPE: b"flights",
        REVISION: b"1",
        REVISION_OFFSET: b"1",
        SEQ: seq_text(1, offset),
        ACCEPTED: b"%d" % offset,
        MINUTE: b"0",
        IN: b"0",
        RAW: b"%d" % offset,
        TO: b"d",
    }
    key = b"%d" % offset
    return ConsumerRecord(TOPICS.enriched, 0, offset, 0, 0, key, b"{}", None, 0, 2, tuple(packed(headers)))


async def profile_delivery() -> CallProfile:
    """Deliver three records, the last one with a profile."""
    registry: Any = PublishedPipe()
    reader: Any = EmptyReader()
    producer: Any = SilentProducer()
    sender: Any = AcceptingSender()
    stream_log: Any = OneLog()
    lease, health = PartitionLease(FreshMember, 10.0), Health("egest", "i")
    budget = InFlightBudget(1000, 10**7)
    recorder = OutcomeRecorder(TOPICS, Outbox(producer, lease), lease)
    resources = LaneResources(
        EgestSettings(kafka="127.0.0.1:1", stream="s"),
        TOPICS.tiers,
        recorder,
        lease,
        budget,
        health,
        DestinationStates(),
        lambda *_: None,
        lambda: False,
        lambda: "",
    )
    lanes = Lanes(registry, resources, lambda: 1.0)
    lane = lanes.get("flights", b"d")
    assert lane is not None
    await lane.sender.stop()
    lane.sender = sender
    intake = DeliveryIntake(TOPICS, registry, lanes, recorder, reader, budget, health, 1.0, stream_log)
    assigned = AssignedPartition(TopicPartition(TOPICS.enriched, 0))
    profile = CallProfile()
    for offset in range(3):
        assigned.offsets.start(offset)
        records = [enriched(offset)]
        producer.sent.clear()
        sys.setprofile(profile if offset == 2 else None)
        unfinished = intake.handle(assigned, records)
        if unfinished is not None:
            await unfinished
        await producer.sent.wait()
        sys.setprofile(None)
    return profile


def main() -> None:
    if not str(delivery.__file__).endswith(".py"):
        sys.exit("compiled functions have no profile: set HIFI_COMPILED=0")
    profile = asyncio.run(profile_delivery())
    first_parsing = [module for module, _ in profile.calls].index(PARSING)
    calls = profile.calls[first_parsing:]
    for module, name in calls:
        print(f"{module:36} {name}")
    print(f"{len(calls)} calls in {len({module for module, _ in calls})} modules")


if __name__ == "__main__":
    main()
