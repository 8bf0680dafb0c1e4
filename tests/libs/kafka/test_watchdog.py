"""A consumer that makes no progress is told from a Kafka that is away."""

from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaTimeoutError

from hifi.kafka.assigned_partition import AssignedPartition
from hifi.kafka.watchdog import ProgressWatchdog

TP = TopicPartition("t", 0)


class FakeMember:
    """A member that reads nothing more than up to `read_to`."""

    def __init__(self, *, answers: bool = True, read_to: int = 5, end: int = 9) -> None:
        self.answers, self.read_to, self.end = answers, read_to, end

    async def end_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        if not self.answers:
            raise KafkaTimeoutError
        return dict.fromkeys(tps, self.end)

    async def position(self, _: TopicPartition) -> int:
        return self.read_to


def watchdog(monkeypatch: pytest.MonkeyPatch, *, kafka_answers: bool) -> ProgressWatchdog:
    async def answers(*_: Any) -> bool:
        return kafka_answers

    monkeypatch.setattr(ProgressWatchdog, "_kafka_answers", answers)
    return ProgressWatchdog("127.0.0.1:1", "i", "g")


async def looks(
    progress_watchdog: ProgressWatchdog, member: FakeMember, times: int
) -> list[list[TopicPartition]]:
    return [await progress_watchdog.stuck(member, [AssignedPartition(TP)]) for _ in range(times)]


async def test_a_position_that_stays_below_the_end_is_stuck_at_the_second_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    progress_watchdog = watchdog(monkeypatch, kafka_answers=True)
    assert await looks(progress_watchdog, FakeMember(), 2) == [[], [TP]]
    assert await looks(progress_watchdog, FakeMember(read_to=9), 3) == [[], [], []]


async def test_a_partition_with_records_in_work_is_not_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    progress_watchdog = watchdog(monkeypatch, kafka_answers=True)
    busy_partition = AssignedPartition(TP)
    busy_partition.offsets.start(4)
    assert [await progress_watchdog.stuck(FakeMember(), [busy_partition]) for _ in range(3)] == [[], [], []]


async def test_a_member_without_an_answer_is_stuck_once_another_client_got_two(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    progress_watchdog = watchdog(monkeypatch, kafka_answers=True)
    assert await looks(progress_watchdog, FakeMember(answers=False), 2) == [[], [TP]]


async def test_an_answer_in_between_starts_the_count_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    progress_watchdog = watchdog(monkeypatch, kafka_answers=True)
    silent_member, working_member = FakeMember(answers=False), FakeMember(read_to=9)
    assert (
        await looks(progress_watchdog, silent_member, 1)
        == await looks(progress_watchdog, working_member, 1)
        == await looks(progress_watchdog, silent_member, 1)
        == [[]]
    )


async def test_nobody_is_stuck_while_kafka_answers_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    progress_watchdog = watchdog(monkeypatch, kafka_answers=False)
    assert not any(await looks(progress_watchdog, FakeMember(answers=False), 20))
