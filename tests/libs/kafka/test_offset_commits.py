"""What a listener decides is in the metadata of a commit before it takes effect."""

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from aiokafka.structs import OffsetAndMetadata

from aiokafka_cooperative import TopicMissingError
from hifi.kafka.assigned_partition import AssignedPartition
from hifi.kafka.offset_commits import commit

TP = TopicPartition("raw", 3)


class Member:
    """Keeps commits, or fails."""

    def __init__(self) -> None:
        self.commits: list[dict[TopicPartition, OffsetAndMetadata]] = []
        self.fails = False
        self.missing: set[str] = set()
        """Topics that do not exist."""

    async def commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
        if self.fails:
            raise KafkaError
        if any(tp.topic in self.missing for tp in offsets):
            raise TopicMissingError
        self.commits.append(offsets)


class Decider:
    """Decides at each commit as long as `decides`."""

    def __init__(self, assigned: AssignedPartition) -> None:
        self.decides = True
        self.decided = 0
        self.kept: list[int] = []
        self.asked: list[int | None] = []
        assigned.commit_listener = self
        assigned.metadata_at = lambda offset: f"{offset}:{self.decided}"

    def before_commit(self, offset: int | None) -> int | None:
        self.asked.append(offset)
        self.decided += self.decides
        return (offset or 0) if self.decides else None

    def after_commit(self) -> None:
        self.kept.append(self.decided)


@pytest.mark.parametrize("committed", [None, 7])
async def test_a_decision_is_committed_although_the_offset_is_the_same(committed: int | None) -> None:
    member, assigned = Member(), AssignedPartition(TP, committed)
    listener = Decider(assigned)
    await commit(member, [assigned])
    assert member.commits == [{TP: OffsetAndMetadata(committed or 0, f"{committed or 0}:1")}]
    assert (listener.asked, listener.kept, assigned.committed) == ([committed], [1], committed or 0)
    listener.decides = False
    await commit(member, [assigned])
    assert (len(member.commits), listener.kept) == (1, [1, 1])


async def test_a_decision_goes_with_the_offset_that_is_complete() -> None:
    member, assigned = Member(), AssignedPartition(TP, 7)
    listener = Decider(assigned)
    listener.decides = False
    assigned.offsets.start(7)
    assigned.complete(7)
    await commit(member, [assigned])
    assert member.commits == [{TP: OffsetAndMetadata(8, "8:0")}]
    assert (listener.asked, assigned.committed) == ([8], 8)


async def test_a_commit_that_fails_keeps_nothing() -> None:
    member, assigned = Member(), AssignedPartition(TP, 7)
    listener = Decider(assigned)
    member.fails = True
    with pytest.raises(KafkaError):
        await commit(member, [assigned])
    assert (listener.kept, assigned.committed) == ([], 7)


async def test_offsets_of_a_topic_that_was_deleted_are_not_committed_to_the_next_one_of_its_name() -> None:
    failures: list[BaseException] = []
    member = Member()
    deleted = AssignedPartition(TP, 7, fail=failures.append)
    other = AssignedPartition(TopicPartition("other", 0), 3)
    for assigned, offset in ((deleted, 7), (other, 3)):
        assigned.offsets.start(offset)
        assigned.complete(offset)
    await commit(member, [other])
    member.missing = {"raw"}
    with pytest.raises(TopicMissingError):
        await commit(member, [deleted, other])
    assert (len(failures), deleted.active, other.active) == (1, False, True)
    member.missing = set()
    await commit(member, [deleted, other])
    assert member.commits == [{other.tp: OffsetAndMetadata(4, "")}]
