"""A cooperative group on a real Kafka: members come, go and are put out; nothing is lost or read twice."""

import asyncio
import math
import time
from collections import Counter
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import CommitFailedError
from aiokafka.protocol.group import LeaveGroupRequest, SyncGroupRequest
from tests.support.aiokafka_cooperative.groups import MakeGroup
from tests.support.aiokafka_cooperative.members import HEARTBEAT_S, WITHIN_S, Ours, until

from aiokafka_cooperative import coordinator
from aiokafka_cooperative.coordinator import CooperativeCoordinator
from aiokafka_cooperative.subscription import MemberSubscription, decode_subscription


async def test_no_record_is_lost_or_worked_on_twice_while_members_come_and_go(group: MakeGroup) -> None:
    async with group(partitions=6, topics=2) as member_group:
        first_member = await member_group.ours().start()
        await member_group.balanced()
        second_member = await member_group.ours().start()
        await member_group.balanced()
        third_member, fourth = member_group.ours(), member_group.ours()
        await asyncio.gather(
            third_member.start(), fourth.start()
        )  # both in one rebalance, or in two that overlap
        await member_group.balanced()
        await member_group.leave(second_member)
        await member_group.balanced()
        await member_group.leave(first_member)  # the leader
        await member_group.balanced()
        for member in (third_member, fourth):
            await member_group.more_of(member, member.assigned)
        sent_count, lost_count, repeated_count = await member_group.finish()
    assert (lost_count, repeated_count) == (0, 0), f"of {sent_count}"
    assert not any(member.told("lost") for member in (first_member, second_member, third_member, fourth))


async def test_only_what_moves_is_revoked_and_announced(group: MakeGroup) -> None:
    async with group(partitions=6) as member_group:
        first_member = await member_group.ours().start()
        assert first_member.told("assigned") == [member_group.all]
        second_member = await member_group.ours().start()
        await member_group.balanced()
        third_member = await member_group.ours().start()
        await member_group.balanced()
        await member_group.leave(third_member)
        await member_group.balanced()
        # 6 > 3+3 > 2+2+2 > 3+3: three, then one each, move, and come back
        assert [len(revoked) for revoked in first_member.told("revoked")] == [3, 1]
        assert [len(revoked) for revoked in second_member.told("revoked")] == [1]
        for member in (first_member, second_member):
            assigned_partitions: set[TopicPartition] = set()
            for call, partitions in member.calls:
                assert (
                    assigned_partitions.isdisjoint(partitions)
                    if call == "assigned"
                    else partitions <= assigned_partitions
                )
                assigned_partitions ^= partitions
            assert assigned_partitions == member.assigned


@pytest.mark.parametrize("sync_delay_s", [0, 1], ids=["", "late-sync"])
async def test_partitions_that_stay_never_stop(
    group: MakeGroup, monkeypatch: pytest.MonkeyPatch, sync_delay_s: float
) -> None:
    """With `late-sync` the third member's SyncGroup arrives when the second one has joined again already."""
    send = CooperativeCoordinator._send_req

    async def delayed(self: Any, request: Any) -> Any:
        if isinstance(request, SyncGroupRequest) and self._client._client_id == "ours-2":
            await asyncio.sleep(sync_delay_s)
        return await send(self, request)

    monkeypatch.setattr(CooperativeCoordinator, "_send_req", delayed)
    async with group(partitions=8) as g:
        first_member = await g.ours().start()
        second_member = await g.ours().start()
        await g.balanced()
        paused = max(second_member.assigned)
        second_member.consumer.pause(paused)
        states = {
            member: member.consumer._coordinator.held_assignment.states()
            for member in (first_member, second_member)
        }
        dropped = {member: dropped_fetches(member) for member in (first_member, second_member)}

        # A third one joins. The first one gives it a partition, and takes its time.
        draining, may_end = asyncio.Event(), asyncio.Event()

        async def drain() -> None:
            draining.set()
            await may_end.wait()

        first_member.drain = drain
        third_member = g.ours()
        # Its start may last as long as the drain: a SyncGroup that is late has to wait for the next rebalance.
        starting = asyncio.create_task(third_member.start())
        try:
            await asyncio.wait_for(draining.wait(), WITHIN_S)
            assert len(first_member.told("revoked")[-1]) == 1, "all others stay"
            (moved_partition,) = first_member.told("revoked")[-1]
            final = g.count(first_member, moved_partition)
            # The second one, which has given its partition already, waits for the first one in JoinGroup.
            joining = second_member.consumer._coordinator._commit_lock
            await until(
                lambda: joining.locked() and len(second_member.assigned) == 3, "the second one joins again"
            )
            heartbeats = {
                member: member.consumer.last_heartbeat_monotonic_s for member in (first_member, second_member)
            }
            # A partition that is new to it would need this to begin, and keep the others waiting until then.
            await asyncio.wait_for(second_member.consumer.committed(paused), HEARTBEAT_S * 10)
            for _ in range(3):  # far longer than anything that a rebalance of moments could hide
                await g.more_of(first_member, first_member.assigned - {moved_partition}, 40)
                await g.more_of(second_member, second_member.assigned - {paused}, 40)
                assert joining.locked(), "all within one JoinGroup"
            for member, before in heartbeats.items():
                assert member.consumer.last_heartbeat_monotonic_s > before
                assert time.monotonic() - member.consumer.last_heartbeat_monotonic_s < 4 * HEARTBEAT_S
            assert g.count(first_member, moved_partition) == final, "what is given away rests"
            announced = [partitions for _, partitions in third_member.calls]
        finally:
            may_end.set()
        await asyncio.wait_for(starting, WITHIN_S)
        await g.balanced()

        for member in (first_member, second_member):
            now = member.consumer._coordinator.held_assignment.states()
            assert len(now) == 3
            assert all(now[tp] is states[member][tp] for tp in now), "position, pause and all"
            assert dropped[member] == []
        assert second_member.consumer.paused() == {paused}
        assert g.count(second_member, paused) < g.traffic.sent[paused]
        second_member.consumer.resume(paused)
        _, lost_count, repeated_count = await g.finish()
    assert (lost_count, repeated_count) == (0, 0)
    assert not any(announced), "nothing is handed over before it was given back"
    assert len(third_member.calls[len(announced)][1]) == 2


def dropped_fetches(member: Ours) -> list[str]:
    """Requests of its fetcher whose answers are dropped from now on."""
    dropped_requests: list[str] = []
    fetcher = member.consumer._fetcher
    fetch = fetcher._proc_fetch_request

    async def recorded_fetch(assignment: Any, node_id: int, request: Any) -> Any:
        answer = asyncio.ensure_future(fetch(assignment, node_id, request))
        try:
            return await answer
        finally:
            if not answer.done() or not assignment.active:
                dropped_requests.append(repr(request))

    fetcher._proc_fetch_request = recorded_fetch
    return dropped_requests


async def test_an_empty_assignment_is_announced_once(group: MakeGroup) -> None:
    async with group(partitions=1) as member_group:
        first, second = await member_group.ours().start(), await member_group.ours().start()
        await until(lambda: second.calls, "the second one knows its assignment")
        third = await member_group.ours().start()  # one more rebalance that brings the second one nothing
        await until(lambda: third.calls, "the third one knows its assignment")
        await until(
            lambda: len({member.consumer.membership.generation for member in member_group.members}) == 1,
            "one generation",
        )
        assert first.calls == [("assigned", member_group.all)]
        assert second.calls == third.calls == [("assigned", set())]
        await member_group.leave(first)
        await member_group.balanced()
        assert Counter(len(partitions) for _, partitions in second.calls + third.calls) == {0: 2, 1: 1}


async def test_a_member_that_was_put_out_loses_everything_and_comes_back(
    group: MakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims: list[MemberSubscription] = []

    def recorded_decode(data: bytes) -> MemberSubscription:
        claims.append(decode_subscription(data))
        return claims[-1]

    monkeypatch.setattr(coordinator, "decode_subscription", recorded_decode)
    async with group(partitions=4) as member_group:
        first_member = await member_group.ours().start()
        second_member = await member_group.ours().start()
        await member_group.balanced()
        held_partitions, old_membership = second_member.assigned, second_member.consumer.membership
        await member_group.more_of(second_member, held_partitions)

        before = len(second_member.told("assigned"))
        await put_out(second_member)
        await until(lambda: second_member.told("lost"), "the loss is reported")
        assert second_member.told("lost") == [held_partitions]
        await member_group.balanced()
        assert second_member.consumer.membership.member_id not in ("", old_membership.member_id)
        assert second_member.consumer.membership.generation > old_membership.generation
        for member in (first_member, second_member):
            await member_group.more_of(member, member.assigned)
        sent_count, lost_count, repeated_count = await member_group.finish()
    # When the others leave in the end, it may get their partitions, too, before it leaves itself.
    reassigned = set().union(*second_member.told("assigned")[before:])
    assert second_member.told("revoked") == [reassigned], "what was lost was not revoked, too"
    assert not any(member.owned for member in claims if member.generation < 0), (
        "it claims nothing of the past"
    )
    assert lost_count == 0
    assert repeated_count <= second_member.read_again, f"of {sent_count}"


async def put_out(member: Ours) -> None:
    """Kafka forgets a member that knows nothing of it, as it does when heartbeats stay away."""
    coordinator = member.consumer._coordinator
    await coordinator._send_req(LeaveGroupRequest(coordinator.group_id, coordinator.member_id))


async def test_a_listener_without_on_partitions_lost_is_told_that_they_are_revoked(
    group: MakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Ours, "on_partitions_lost")
    async with group(partitions=2) as member_group:
        member = await member_group.ours().start()
        await put_out(member)
        await until(lambda: len(member.told("assigned")) == 2, "it is back")
        assert member.calls == [
            ("assigned", member_group.all),
            ("revoked", member_group.all),
            ("assigned", member_group.all),
        ]


async def test_a_commit_of_what_was_lost_meanwhile_is_refused(group: MakeGroup) -> None:
    async with group(partitions=2) as member_group:
        member = await member_group.ours().start()
        await member_group.more_of(member, member_group.all)
        await member.end_work()
        await member._commit(member_group.all)  # after one that was cancelled while Kafka already had it
        coordinator = member.consumer._coordinator
        committed_offsets = {tp: await member.consumer.committed(tp) for tp in member_group.all}

        # The commit has begun when the membership ends, and goes on when all is assigned again.
        async with coordinator._commit_lock:
            offsets = {tp: member.done[tp] + 1_000_000 for tp in member_group.all}
            late_commit = asyncio.create_task(member.consumer.commit(offsets))
            await asyncio.sleep(0)
            await put_out(member)
            coordinator.reset_generation()  # as the next heartbeat would
            assert member.consumer.membership == (-1, "")
            assert member.consumer.last_heartbeat_monotonic_s == -math.inf
            await asyncio.sleep(0)
        with pytest.raises(CommitFailedError):
            await late_commit
        await until(lambda: len(member.told("assigned")) == 2, "it is back")
        assert {tp: await member.consumer.committed(tp) for tp in member_group.all} == committed_offsets


async def test_no_commit_is_under_way_from_join_to_sync(
    group: MakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way: Counter[str] = Counter()
    sent_counts: Counter[str] = Counter()
    overlaps: list[str] = []
    send = CooperativeCoordinator._send_req

    async def counted_send(self: Any, request: Any) -> Any:
        kind = type(request).__name__.removesuffix("Request")
        is_ours = self._client._client_id == "ours-0"
        if is_ours:
            sent_counts[kind] += 1
            under_way[kind] += 1
            if under_way["OffsetCommit"] and under_way["JoinGroup"] + under_way["SyncGroup"]:
                overlaps.append(kind)
        answer = await send(self, request)
        under_way[kind] -= is_ours
        return answer

    monkeypatch.setattr(CooperativeCoordinator, "_send_req", counted_send)
    async with group(partitions=4) as member_group:
        first_member = await member_group.ours().start()
        await member_group.more_of(first_member, member_group.all)
        for _ in range(3):
            other_member = await member_group.ours().start()
            await member_group.balanced()
            await member_group.leave(other_member)
            await member_group.balanced()
    assert overlaps == []
    assert sent_counts["JoinGroup"] >= 9
    assert sent_counts["OffsetCommit"] > 20


async def test_a_changed_subscription_takes_only_what_is_no_longer_wanted(group: MakeGroup) -> None:
    async with group(partitions=3, topics=2) as g:
        member = await g.ours().start()
        await g.more_of(member, g.all)
        old, new = g.topics
        states = member.consumer._coordinator.held_assignment.states()
        member.consumer.subscribe([new], listener=member)
        kept = {tp for tp in g.all if tp.topic == new}
        await until(lambda: member.assigned == kept, "the new assignment")
        assert member.told("revoked") == [g.all - kept]
        assert all(
            state is states[tp] for tp, state in member.consumer._coordinator.held_assignment.states().items()
        )
        await g.more_of(member, kept)
        member.consumer.subscribe([old, new], listener=member)
        await until(lambda: member.assigned == g.all, "all again")
        assert member.told("assigned") == [g.all, g.all - kept]
        _, lost_count, repeated_count = await g.finish()
    assert (lost_count, repeated_count) == (0, 0)


async def test_other_consumers_keep_their_own_coordinator(group: MakeGroup) -> None:
    async with group(partitions=2) as member_group:
        eager = AIOKafkaConsumer(
            *member_group.topics, bootstrap_servers=member_group.kafka, group_id=f"{member_group.id}.eager"
        )
        await asyncio.gather(member_group.ours().start(), eager.start())
        assert type(eager._coordinator) is GroupCoordinator
        assert type(member_group.members[0].consumer._coordinator) is CooperativeCoordinator
        await eager.stop()
