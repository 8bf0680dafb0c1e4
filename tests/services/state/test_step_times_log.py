"""What a colour states of its steps, on a real Kafka: the other one knows it, and that a colour sleeps."""

import asyncio
import uuid
from pathlib import Path

from tests.support.colours.coloured_kafka import ColoursUnderTest
from tests.support.colours.coloured_meshes import until

from hifi.delivery.colours import NAMES, ColourState
from hifi.kafka.admin import create_topics
from hifi.kafka.producer import Producer
from hifi.kafka.topics import ControlTopics
from hifi.record.record import Record
from hifi.runtime.clock import now_us
from hifi_state.fold.colour_times import ColourTimes, Interval, may_have
from hifi_state.settings import StateSettings
from hifi_state.step_times_log import StepTimesLog


async def write_unreadable(kafka: str, topic: str) -> None:
    """Records that no release of today writes: a follower skips them, whatever stands before and after."""
    values = [
        b"\xff",
        b"[]",
        b"{}",
        b"7",
        b'{"since_ms": "x"}',
        b'{"format": 99, "since_ms": 1}',
        b"[" * 10_000,
        None,
    ]
    producer = Producer(kafka, "test")
    await producer.start()
    try:
        for key in (b"counts/green", b"\xff", b""):
            await producer.send_and_wait(topic, 0, [Record(key, value, []) for value in values])
    finally:
        await producer.stop()


async def test_a_colour_knows_what_the_other_one_states_and_that_it_sleeps(
    kafka: str, tmp_path: Path
) -> None:
    colours = ColoursUnderTest(kafka, f"s{uuid.uuid4().hex[:8]}", {"blue": tmp_path, "green": tmp_path})
    control = ControlTopics(f"{colours.stream}-control")
    await create_topics(kafka, control, partitions=1, replication=1, create=True)
    await colours.write()
    await write_unreadable(kafka, control.step_times)
    logs = {
        name: StepTimesLog(
            StateSettings(
                kafka="127.0.0.1:1",
                stream=colours.stream,
                colours=control.control,
                colour=name,
                control_kafka=kafka,
            )
        )
        for name in NAMES
    }
    following = [asyncio.create_task(log.follow()) for log in logs.values()]
    now_ms = now_us() // 1000
    own_times = ColourTimes(0, 5_000, now_ms, (Interval(now_ms - 9_000, now_ms - 8_000),))
    try:

        def blue_knows() -> bool:
            logs["green"].state("counts", own_times)
            return logs["blue"].other("counts", 5_000).horizon_ms == now_ms

        await until(blue_knows)
        times = logs["blue"].other("counts", 5_000).times
        assert may_have(times, now_ms - 8_000, now_ms - 7_000)
        assert not may_have(times, now_ms - 7_000, now_ms)
        assert may_have(logs["green"].other("counts", 5_000).times, now_ms - 7_000, now_ms), (
            "blue states nothing"
        )
        assert may_have(logs["blue"].other("others", 5_000).times, now_ms - 7_000, now_ms)

        await colours.write(green=ColourState.ASLEEP)
        # 5 s of lateness and 5 s for clocks before the time at which it was seen asleep.
        await until(lambda: logs["blue"].other("counts", 5_000).horizon_ms > now_ms)
        assert logs["green"].own_times("counts", None) == own_times, "also in a log that is new"
    finally:
        for task in following:
            task.cancel()
        await asyncio.gather(*following, return_exceptions=True)
