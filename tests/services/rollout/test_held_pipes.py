"""A rollout service replaces nothing that it cannot read, and goes on with other pipes; real service, real Kafka."""

from pathlib import Path

import orjson
from tests.support.held_pipes import of_later_release, unreadable_record
from tests.support.rollout.controlled_stream import ControlledStream, controlled, ended, pipe

from hifi.control.declaration import Declaration
from hifi.control.rollout_status import RolloutState
from hifi.kafka.producer import Producer
from hifi.pipe.registry import publish
from hifi.pipe.source import HttpSource
from hifi.runtime.clock import now_us

ORDERS = pipe("a", "orders").model_copy(
    update={"source": HttpSource.model_validate({"keys": [{"env": "ORDERS_KEY"}]})}
)


async def declare_as_a_later_release(stream: ControlledStream, replaces: int) -> None:
    """Write a declaration that this release cannot read."""
    producer = Producer(stream.kafka, "later")
    await producer.start()
    record = of_later_release(Declaration("flights", pipe("b"), "eve", now_us(), replaces).record())
    assert orjson.loads(record.value or b"")["pipe"]["slo"] == {"newkey": 1}
    await producer.send_and_wait(stream.control.declared, 0, [record])
    await producer.stop()


async def test_a_pipe_in_force_that_cannot_be_read_is_not_replaced_until_it_is_declared_deleted(
    kafka: str, tmp_path: Path
) -> None:
    async with controlled(kafka, tmp_path) as stream:
        await publish(kafka, stream.topics, [unreadable_record(pipe("b"), 2)])
        await stream.declare(pipe("a"))
        await stream.declare(ORDERS, "orders")
        stream.run()
        await stream.status(ended(RolloutState.IN_FORCE, 1), "orders")
        waiting_status = await stream.status(ended(RolloutState.WAITING, 0))
        assert "the pipe is held" in waiting_status.reason
        assert "newkey" in waiting_status.reason
        registry = await stream.pipes()
        assert registry.pipes.keys() == {"orders"}
        assert registry.held.keys() == {"flights"}

        await stream.declare(None)
        await stream.status(ended(RolloutState.IN_FORCE, 2))
        assert (await stream.pipes()).held == {}
        await stream.declare(pipe("a"))
        await stream.status(ended(RolloutState.IN_FORCE, 3))


async def test_an_earlier_declaration_is_not_put_into_force_after_one_that_cannot_be_read(
    kafka: str, tmp_path: Path
) -> None:
    async with controlled(kafka, tmp_path) as stream:
        await stream.declare(pipe("a"))
        await declare_as_a_later_release(stream, 0)
        await stream.declare(ORDERS, "orders")
        stream.run()
        await stream.status(ended(RolloutState.IN_FORCE, 2), "orders")
        waiting_status = await stream.status(ended(RolloutState.WAITING, 0))
        assert "the pipe is held: the record at offset 1 is not a declaration" in waiting_status.reason
        assert (await stream.pipes()).pipes.keys() == {"orders"}
