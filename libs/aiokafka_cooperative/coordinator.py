"""aiokafka's group coordinator, with cooperative instead of eager rebalancing.

One rebalance, in the order in which aiokafka's coordination task calls these methods:

1. **Prepare** (`_on_join_prepare`): revoke only partitions of topics that are no longer subscribed. The eager protocol
   revokes everything here.
2. **Join** (`_do_rejoin_group`): send JoinGroup with the partitions that this member holds. Commits wait until the join
   is over; heartbeats continue on another connection.
3. **Assign** (`_perform_assignment`): if this member leads, assign partitions. One that moves is assigned to nobody
   yet.
4. **Sync** (`_on_join_complete`): apply the difference to what is held. If partitions were revoked, **rejoin**: the
   next rebalance assigns them to their new owners.

At any time Kafka may remove the member (`reset_generation`). What it held is lost, which is reported before it joins
again.
"""
# ruff: noqa: SLF001 - aiokafka has no public interface for this

import asyncio
import contextlib
import inspect
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any, NamedTuple

from aiokafka import TopicPartition
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.group_coordinator import CoordinatorGroupRebalance, GroupCoordinator
from aiokafka.consumer.subscription_state import Assignment, Subscription, TopicPartitionState
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    IllegalGenerationError,
    IllegalStateError,
    KafkaError,
    UnknownTopicOrPartitionError,
    for_code,
)
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.group import HeartbeatRequest, SyncGroupRequest

from aiokafka_cooperative.assignment import HeldAssignment
from aiokafka_cooperative.assignor import PROTOCOL, assign
from aiokafka_cooperative.lease import MembershipLease
from aiokafka_cooperative.subscription import (
    NO_GENERATION,
    MemberSubscription,
    by_topic,
    decode_subscription,
    encode_subscription,
)

logger = logging.getLogger(__name__)


class TopicMissingError(KafkaError):  # type: ignore[misc]
    """A topic of a commit does not exist, such as after its deletion. Offsets of other topics are committed."""


class GroupMembership(NamedTuple):
    """The generation of a member's assignment, and the member's id; -1 and "" outside of a group."""

    generation: int
    member_id: str


class _JoinMetadata:
    """The subscription to send with JoinGroup; takes the place of an assignor in aiokafka."""

    name = PROTOCOL

    def __init__(self, coordinator: "CooperativeCoordinator") -> None:
        self._coordinator = coordinator

    def metadata(self, topics: Iterable[str]) -> bytes:
        assignment, membership = self._coordinator.held_assignment, self._coordinator.membership
        return encode_subscription(
            MemberSubscription(frozenset(topics), frozenset(assignment.tps), membership.generation)
        )


class CooperativeCoordinator(GroupCoordinator):  # type: ignore[misc]
    """The coordinator of one CooperativeConsumer."""

    def __init__(self, client: Any, subscription: Any, *, fetcher: Fetcher, **options: Any) -> None:
        super().__init__(client, subscription, **(options | {"assignors": (_JoinMetadata(self),)}))
        self.held_assignment = HeldAssignment({})
        self.lease = MembershipLease(
            session_timeout_s=self._session_timeout_ms / 1000,
            rebalance_timeout_s=self._rebalance_timeout_ms / 1000,
        )
        self._fetcher = fetcher
        self._group_subscription: set[str] | None = None
        self._synced_generation = NO_GENERATION  # `generation` is ahead of it from JoinGroup to SyncGroup
        self._lost = False
        self._announced = False

    @property
    def membership(self) -> GroupMembership:
        """See CooperativeConsumer."""
        is_synced = self._synced_generation != NO_GENERATION
        return GroupMembership(self._synced_generation, self.member_id if is_synced else "")

    # 1. Prepare

    async def ensure_active_group(self, subscription: Subscription, prev_assignment: Any) -> Any:
        """Join the group. Reports a loss first, so that nothing that was lost is claimed."""
        await self._report_lost()
        return await super().ensure_active_group(subscription, prev_assignment)

    async def _on_join_prepare(self, previous_assignment: Any) -> None:
        """Revoke what a changed subscription no longer includes. The member goes on reading all else."""
        del previous_assignment
        self._group_subscription = None  # only a leader watches the topics of all members
        subscription = self._subscription.subscription
        if subscription is not None and self.held_assignment.tps and self._carry_over(subscription):
            await self._revoke({tp for tp in self.held_assignment.tps if tp.topic not in subscription.topics})

    def _carry_over(self, subscription: Subscription) -> bool:
        """Make all that is held the assignment of a new subscription; False if the subscription is not new."""
        if subscription.assignment is self.held_assignment:
            return False
        self.held_assignment = HeldAssignment(self.held_assignment.states())
        subscription._assignment = self.held_assignment
        subscription._reassignment_in_progress = False
        if self.held_assignment.tps:
            self.request_rejoin()
            self._subscription._notify_assignment_waiters()  # the fetcher continues with it
        return True

    # 2. Join

    async def _do_rejoin_group(self, subscription: Subscription) -> bool:
        """Send JoinGroup and SyncGroup, then apply the assignment; False: the caller tries again."""
        rebalance = CoordinatorGroupRebalance(
            self,
            self.group_id,
            self.coordinator_id,
            subscription,
            self._assignors,
            self._session_timeout_ms,
            self._retry_backoff_ms,
        )
        # Kafka refuses commits between JoinGroup and SyncGroup, and a commit that a join overtakes looks like one of
        # an unknown member: all commits wait until the join is over. The listener, which commits too, comes after it.
        async with self._commit_lock, self._heartbeats_while_joining():
            join_result = await rebalance.perform_group_join()
        if not subscription.active:
            self._performed_join_prepare = False  # the new subscription has to be prepared first
            return False
        if join_result is None:
            await asyncio.sleep(self._retry_backoff_ms / 1000)
            return False
        await self._on_join_complete(self.generation, self.member_id, *join_result)
        return True

    @contextlib.asynccontextmanager
    async def _heartbeats_while_joining(self) -> AsyncIterator[None]:
        """Send heartbeats on the fetch connection: JoinGroup blocks the other until the slowest member has joined.

        Kafka keeps a member that waits in JoinGroup without them. They are for the lease: the member goes on reading
        the partitions that stay, and that work may depend on `last_heartbeat_monotonic_s`.
        """
        heartbeats = asyncio.create_task(self._send_heartbeats(self.generation, self.member_id))
        try:
            yield
        finally:
            heartbeats.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await heartbeats

    async def _send_heartbeats(self, generation: int, member_id: str) -> None:
        alive = generation != NO_GENERATION
        while alive:
            await asyncio.sleep(self._heartbeat_interval_ms / 1000)
            if self.coordinator_id is None:  # lost during the join, which ends or looks it up again
                continue
            sent_s = time.monotonic()
            with contextlib.suppress(KafkaError):
                request = HeartbeatRequest(self.group_id, generation, member_id)
                response = await self._client.send(self.coordinator_id, request)
                alive = self.lease.on_response(sent_s, for_code(response.error_code), joining=True)

    # 3. Assign (leader only)

    async def _perform_assignment(self, response: Any) -> dict[str, bytes]:
        """Assign the partitions of all subscribed topics to the members of the group."""
        members = {str(member[0]): decode_subscription(member[-1]) for member in response.members}
        topics = self._group_subscription = set().union(*(member.topics for member in members.values()))
        if not self._subscription.subscribed_pattern:
            self._client.set_topics(topics)
        await self._client._maybe_wait_metadata()
        self._metadata_snapshot = self._get_metadata_snapshot()
        shares = assign(members, self._partition_counts(members))
        counts = {name: len(share) for name, share in shares.items()}
        logger.info("Assigned the partitions of group %s: %s", self.group_id, counts)
        return {
            name: ConsumerProtocolMemberAssignment(0, by_topic(share), b"").encode()
            for name, share in shares.items()
        }

    def _partition_counts(self, members: Mapping[str, MemberSubscription]) -> dict[str, int]:
        """Partitions of each topic. If its metadata is missing, the highest owned partition tells the number."""
        topics = set().union(*(member.topics for member in members.values()))
        counts = {topic: len(self._cluster.partitions_for_topic(topic) or ()) for topic in topics}
        for topic, owned_numbers in by_topic(tp for member in members.values() for tp in member.owned):
            if not counts.get(topic):
                counts[topic] = max(owned_numbers) + 1
        return counts

    # 4. Sync, revoke, rejoin

    async def _on_join_complete(
        self, generation: int, member_id: str, protocol: str, response: bytes
    ) -> None:
        """Apply the difference between the new assignment and what is held."""
        del member_id, protocol
        await self._report_lost()
        self._synced_generation = generation
        self._start_heartbeat_task()  # before the listener, which may take long
        subscription = self._subscription.subscription
        assigned_partitions = _decode_assignment(response, subscription)
        self._carry_over(subscription)
        await self._stop_commit_offsets_refresh_task()
        self.start_commit_offsets_refresh_task(self.held_assignment)
        change = self.held_assignment.change_to(assigned_partitions)
        if change.revoked:
            await self._revoke(change.revoked)
            self.request_rejoin()
        if not self._lost and subscription.active:
            await self._add(change.added)

    async def _add(self, added_partitions: frozenset[TopicPartition]) -> None:
        self.held_assignment.add(added_partitions)
        self._subscription._notify_assignment_waiters()
        self._fetcher._notify(self._fetcher._wait_consume_future)  # it fetches the new partitions at once
        if added_partitions or not self._announced:
            self._announced = True
            await self._call_listener("on_partitions_assigned", added_partitions)

    async def _revoke(self, partitions: Iterable[TopicPartition]) -> None:
        if partitions := set(partitions):
            self.held_assignment.pause(partitions)
            await self._call_listener("on_partitions_revoked", partitions)
            self._remove(partitions)

    def _remove(self, partitions: set[TopicPartition]) -> None:
        self.held_assignment.remove(partitions)
        for tp in partitions:
            self._fetcher._records.pop(tp, None)

    async def _call_listener(self, method: str, partitions: Iterable[TopicPartition]) -> None:
        listener = self._subscription.listener
        if listener is None:
            return
        try:
            awaitable = getattr(listener, method)(set(partitions))
            if inspect.isawaitable(awaitable):
                await awaitable
        except Exception:
            # The rebalance goes on, as in aiokafka: otherwise the group would wait, and then remove this member.
            logger.exception("The rebalance listener of group %s failed in %s", self.group_id, method)

    # Loss and stop

    def reset_generation(self) -> None:
        """Kafka has removed this member from the group: partitions may be read by others from now on."""
        super().reset_generation()
        self._synced_generation = NO_GENERATION
        self.lease.end()
        self._announced = False
        self._lost = bool(self.held_assignment.tps)
        self.held_assignment.pause(self.held_assignment.tps)

    async def _report_lost(self) -> None:
        """Tell the listener, once, about partitions that were lost since the last call."""
        if not self._lost:
            return
        lost_partitions = set(self.held_assignment.tps)
        has_method = hasattr(self._subscription.listener, "on_partitions_lost")
        await self._call_listener(
            "on_partitions_lost" if has_method else "on_partitions_revoked", lost_partitions
        )
        self._remove(lost_partitions)
        self._lost = False

    async def _coordination_routine(self) -> None:
        """Run until the consumer stops; then revoke everything while heartbeats continue."""
        await super()._coordination_routine()
        await self._report_lost()
        await self._revoke(self.held_assignment.tps)

    # Requests

    async def commit_offsets(self, assignment: Assignment, offsets: Mapping[TopicPartition, Any]) -> None:
        """Commit offsets. Passes on the state of each partition in place of the assignment, for the check below."""
        await super().commit_offsets({tp: assignment.state_value(tp) for tp in offsets}, offsets)

    async def _do_commit_offsets(
        self, assignment: Mapping[TopicPartition, TopicPartitionState], offsets: Mapping[TopicPartition, Any]
    ) -> None:
        """Refuse a commit of partitions that were given away while it waited, or whose topic does not exist.

        aiokafka would commit the ones with the generation of now, or as nobody's without one, and repeat the commit of
        the others until there is another topic of the name, whose offsets they are not.
        """
        states = self.held_assignment.states()
        if self._lost or any(states.get(tp) is not state for tp, state in assignment.items()):
            raise IllegalGenerationError("revoked or lost meanwhile")  # becomes a CommitFailedError
        try:
            await super()._do_commit_offsets(assignment, offsets)
        except UnknownTopicOrPartitionError as error:
            raise TopicMissingError(*error.args) from error

    async def _send_req(self, request: Any) -> Any:
        """Send a request to the coordinator, OffsetFetch on the fetch connection.

        JoinGroup blocks the other connection until the slowest member has joined, and a partition that waits for its
        committed offset delays the fetches of all partitions of its broker.
        """
        if isinstance(request, OffsetFetchRequest):
            if self.coordinator_id is None:
                raise GroupCoordinatorNotAvailableError
            return await self._client.send(self.coordinator_id, request)
        sent_s = time.monotonic()
        response = await super()._send_req(request)
        if isinstance(request, HeartbeatRequest | SyncGroupRequest):
            self.lease.on_response(sent_s, for_code(response.error_code))
        return response


def _decode_assignment(response: bytes, subscription: Subscription) -> set[TopicPartition]:
    assigned_partitions = (
        set(ConsumerProtocolMemberAssignment.decode(response).partitions()) if response else set()
    )
    if unsubscribed_topics := {tp.topic for tp in assigned_partitions} - subscription.topics:
        raise IllegalStateError(
            f"the group's leader assigned topics that are not subscribed: {unsubscribed_topics}"
        )
    return assigned_partitions
