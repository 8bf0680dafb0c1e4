"""Cooperative rebalancing (KIP-429) for aiokafka: a member gives up only what it is asked for, and reads on.

aiokafka knows the eager protocol alone: each rebalance takes everything from everybody. Here a subclass of
its group coordinator tells the leader what this member holds, applies only what a new assignment changes, and
joins once more when it had to give something back. `check_aiokafka` knows what that takes for granted.
"""
# ruff: noqa: SLF001 - aiokafka has no public place for any of this

import asyncio
import contextlib
import inspect
import math
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from types import CodeType
from typing import Any, Final, NamedTuple, TypeAlias

import aiokafka
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.consumer.group_coordinator import CoordinatorGroupRebalance, GroupCoordinator
from aiokafka.consumer.subscription_state import (
    Assignment,
    Subscription,
    SubscriptionState,
    TopicPartitionState,
)
from aiokafka.coordinator.protocol import ConsumerProtocolMemberAssignment
from aiokafka.errors import (
    GroupCoordinatorNotAvailableError,
    IllegalGenerationError,
    IllegalStateError,
    KafkaError,
    NoError,
    RebalanceInProgressError,
    for_code,
)
from aiokafka.protocol.commit import OffsetFetchRequest
from aiokafka.protocol.group import HeartbeatRequest, SyncGroupRequest
from aiokafka.structs import OffsetAndMetadata

from aiokafka_cooperative.assignor import (
    NO_GENERATION,
    PROTOCOL,
    Member,
    assign,
    by_topic,
    decode_member,
    encode_member,
)
from hifi import log
from hifi.errors import Misconfigured
from hifi.kafka.adaptive_fetcher import AdaptiveFetcher, start_with

Offsets: TypeAlias = Mapping[TopicPartition, int | tuple[int, str] | OffsetAndMetadata]

logger = log.get(__name__)


class Membership(NamedTuple):
    """The generation of this member's assignment, and its id; -1 and "" while it is in no group."""

    generation: int
    member_id: str


class CooperativeConsumer(AIOKafkaConsumer):  # type: ignore[misc]
    """An AIOKafkaConsumer that rebalances cooperatively with others of its kind, Java's and librdkafka's.

    Its constructor is AIOKafkaConsumer's, except: it needs a group and `subscribe` (for `assign` there is
    AIOKafkaConsumer), ignores `partition_assignment_strategy`, does not commit by itself, and `fetch_max_wait_ms` is
    0 by default and has another meaning: see AdaptiveFetcher.

    The listener's methods, which may be coroutines, are called one at a time and awaited:

    - `on_partitions_assigned(added)`: only what is new. Called with an empty set, too, when joining the group
      brought nothing: from then on the assignment is known.
    - `on_partitions_revoked(taken)`: only what is taken away; everything when the consumer stops. These are
      paused already; commits still count, heartbeats go on. The group waits for it, so it must be done well
      within `rebalance_timeout_ms`.
    - `on_partitions_lost(lost)`: Kafka put this member out of the group, others may read these already. They
      are paused, commits fail. A listener without this method gets `on_partitions_revoked` instead.

    Partitions that stay are not touched: position, pause, fetched records, fetches under way.

    Raises:
        Misconfigured: no group, auto commit, or an aiokafka release that this was not built on.
    """

    def __init__(self, *topics: str, **options: Any) -> None:
        if not options.get("group_id"):
            raise Misconfigured(
                "a cooperative consumer needs a group_id: without a group nothing is shared out"
            )
        if options.setdefault("enable_auto_commit", False):
            raise Misconfigured("enable_auto_commit would commit records before the work on them is done")
        check_aiokafka()
        options.pop("partition_assignment_strategy", None)
        options.setdefault("fetch_max_wait_ms", 0)
        super().__init__(*topics, **options)

    async def start(self) -> None:
        """Connect, join the group, and wait until the assignment is known (possibly empty)."""
        await start_with({"GroupCoordinator": self._make_coordinator, "Fetcher": AdaptiveFetcher})(self)

    def _make_coordinator(self, *arguments: Any, **options: Any) -> "CooperativeCoordinator":
        return CooperativeCoordinator(*arguments, fetcher=self._fetcher, **options)

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commit for each partition the offset to go on from: an int, (int, metadata) or OffsetAndMetadata.

        While the group joins this waits; then it goes through only if all these partitions have been this
        member's all the time.

        Raises:
            CommitFailedError: a partition was given away or lost meanwhile; nothing is committed.
            IllegalStateError: a partition is not assigned.
            ValueError: no offsets. What was handed out is not what is done, least of all while the group
                rebalances (aiokafka #929, #933).
            KafkaError: Kafka refused.
        """
        if offsets is None:
            raise ValueError("say which offsets to commit: what was handed out is not yet what is done")
        await super().commit(offsets)

    @property
    def membership(self) -> Membership:
        """Who this member is, and in which generation its assignment was confirmed last."""
        return Membership(NO_GENERATION, "") if self._coordinator is None else self._coordinator.membership

    @property
    def last_heartbeat_monotonic_s(self) -> float:
        """When the last heartbeat was sent that Kafka answered well, on `time.monotonic()`; -inf as nobody.

        From then on Kafka keeps this member, and its partitions for it, for at least `session_timeout_ms`. So it
        stands still when a rebalance waits for this member too long, however well heartbeats are answered.
        """
        return -math.inf if self._coordinator is None else self._coordinator.lease.last_heartbeat_s


class Lease:
    """How long Kafka keeps a member at least, going by its answers. Pure; seconds of any monotonic clock."""

    def __init__(self, *, session_timeout_s: float, rebalance_timeout_s: float) -> None:
        self.last_heartbeat_s = -math.inf
        """From then on it is the session timeout."""
        self._grace_s = rebalance_timeout_s - session_timeout_s
        self._stable_s = -math.inf

    def answered(self, sent_s: float, error: type[KafkaError], *, joining: bool = False) -> bool:
        """Take note of the answer to a heartbeat (or to SyncGroup); says whether it was good.

        A member that does not join a rebalance in time is put out in spite of its heartbeats. That rebalance
        began after the last heartbeat without one. While it waits in JoinGroup nothing more is asked of it.
        """
        if error is NoError:
            self._stable_s = sent_s
        elif error is RebalanceInProgressError:
            sent_s = sent_s if joining else min(sent_s, self._stable_s + self._grace_s)
        else:
            return False
        self.last_heartbeat_s = max(self.last_heartbeat_s, sent_s)
        return True

    def end(self) -> None:
        """Kafka has put this member out."""
        self.last_heartbeat_s = self._stable_s = -math.inf


class _Held(Assignment):  # type: ignore[misc]
    """The partitions that this member holds, changed in place.

    aiokafka makes a new Assignment at each rebalance, and its fetcher then drops all records and requests.
    This one stays; the fetcher, which looks at it before each request, just finds partitions more or less.
    """

    def __init__(self, kept: Mapping[TopicPartition, TopicPartitionState]) -> None:
        super().__init__(list(kept))
        for tp, state in kept.items():
            state._assignment = self
            self._tp_state[tp] = state

    def states(self) -> dict[TopicPartition, TopicPartitionState]:
        """What aiokafka knows of each partition: one and the same object for as long as it is held."""
        return {tp: self._tp_state[tp] for tp in self.tps}

    def grant(self, added: set[TopicPartition]) -> None:
        """Take partitions in. The fetcher asks for their committed offsets."""
        self._tp_state |= {tp: TopicPartitionState(self) for tp in added}
        self._topic_partitions |= added

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Fetch and hand out nothing more of these."""
        for tp in partitions:
            self._tp_state[tp].pause()

    def release(self, taken: set[TopicPartition]) -> None:
        """Let partitions go."""
        self.pause(taken)
        self._topic_partitions -= taken
        for state in (self._tp_state[tp] for tp in taken):
            # The state stays behind without a position: the answer to a fetch under way, which looks for it,
            # drops the records then. Who waits for the position has to look again.
            state._position = None
            if not state._position_fut.done():
                state._position_fut.set_result(None)

    def requesting_committed(self) -> list[TopicPartition]:
        """Whose committed offset is asked for; also if let go meanwhile, since all fetches wait for it."""
        return [tp for tp, state in self._tp_state.items() if state._committed_futs]


class _Claim:
    """What this member says when it joins; it stands where aiokafka expects an assignor."""

    name = PROTOCOL

    def __init__(self, coordinator: "CooperativeCoordinator") -> None:
        self._coordinator = coordinator

    def metadata(self, topics: Iterable[str]) -> bytes:
        held, membership = self._coordinator.held, self._coordinator.membership
        return encode_member(Member(frozenset(topics), frozenset(held.tps), membership.generation))


class CooperativeCoordinator(GroupCoordinator):  # type: ignore[misc]
    """aiokafka's group coordinator, made cooperative. Each consumer makes its own."""

    def __init__(self, client: Any, subscription: Any, *, fetcher: Fetcher, **options: Any) -> None:
        super().__init__(client, subscription, **(options | {"assignors": (_Claim(self),)}))
        self.held = _Held({})
        self.lease = Lease(
            session_timeout_s=self._session_timeout_ms / 1000,
            rebalance_timeout_s=self._rebalance_timeout_ms / 1000,
        )
        self._fetcher = fetcher
        self._group_subscription: set[str] | None = None
        self._synced_generation = NO_GENERATION  # `generation` is ahead of it from JoinGroup to SyncGroup
        self._lost = False
        self._announced = False

    @property
    def membership(self) -> Membership:
        """See CooperativeConsumer."""
        known = self._synced_generation != NO_GENERATION
        return Membership(self._synced_generation, self.member_id if known else "")

    # Joining

    async def ensure_active_group(self, subscription: Subscription, prev_assignment: Any) -> Any:
        """Begin each attempt to join without what was lost, so that nothing of it is claimed."""
        if self._lost:
            await self._report_lost()
        return await super().ensure_active_group(subscription, prev_assignment)

    async def _on_join_prepare(self, previous_assignment: Any) -> None:
        """Give back only what a changed subscription no longer wants. All else is read on."""
        del previous_assignment
        self._group_subscription = None  # only a leader watches the topics of all
        subscription = self._subscription.subscription
        if subscription is not None and self.held.tps and self._adopt(subscription):
            await self._revoke({tp for tp in self.held.tps if tp.topic not in subscription.topics})

    async def _do_rejoin_group(self, subscription: Subscription) -> bool:
        rebalance = CoordinatorGroupRebalance(
            self,
            self.group_id,
            self.coordinator_id,
            subscription,
            self._assignors,
            self._session_timeout_ms,
            self._retry_backoff_ms,
        )
        # Kafka refuses commits between JoinGroup and SyncGroup, and one that a join overtakes looks like that
        # of a stranger: hold all back until the join is over. The listener, which commits too, comes after.
        async with self._commit_lock, self._heartbeats_while_joining():
            joined = await rebalance.perform_group_join()
        if not subscription.active:
            self._performed_join_prepare = False  # what the new one does not want has to be given back first
            return False
        if joined is None:
            await asyncio.sleep(self._retry_backoff_ms / 1000)
            return False
        await self._on_join_complete(self.generation, self.member_id, *joined)
        return True

    async def _perform_assignment(self, response: Any) -> dict[str, bytes]:
        """As the leader, share out for all."""
        members = {str(member[0]): decode_member(member[-1]) for member in response.members}
        topics = self._group_subscription = set().union(*(member.topics for member in members.values()))
        if not self._subscription.subscribed_pattern:
            self._client.set_topics(topics)
        await self._client._maybe_wait_metadata()
        counts = {topic: len(self._cluster.partitions_for_topic(topic) or ()) for topic in topics}
        for topic, numbers in by_topic(tp for member in members.values() for tp in member.owned):
            if not counts.get(topic):  # cannot be seen just now: what is owned of it stays where it is
                counts[topic] = max(numbers) + 1
        self._metadata_snapshot = self._get_metadata_snapshot()
        shares = assign(members, counts)
        logger.info(
            "group-assigned", group=self.group_id, shares={name: len(tps) for name, tps in shares.items()}
        )
        return {
            name: ConsumerProtocolMemberAssignment(0, by_topic(tps), b"").encode()
            for name, tps in shares.items()
        }

    async def _on_join_complete(self, generation: int, member_id: str, protocol: str, answer: bytes) -> None:
        """Apply what has changed, and see that the group joins again if something was given back."""
        del member_id, protocol
        if self._lost:
            await self._report_lost()
        self._synced_generation = generation
        self._start_heartbeat_task()  # before the listener, which may take its time
        subscription = self._subscription.subscription
        assigned = set(ConsumerProtocolMemberAssignment.decode(answer).partitions()) if answer else set()
        if strange := {tp.topic for tp in assigned} - subscription.topics:
            raise IllegalStateError(f"the group's leader assigned topics that were not asked for: {strange}")
        self._adopt(subscription)
        await self._stop_commit_offsets_refresh_task()
        self.start_commit_offsets_refresh_task(self.held)
        if taken := set(self.held.tps) - assigned:
            await self._revoke(taken)
            self.request_rejoin()
        if self._lost or not subscription.active:
            return
        added = assigned - self.held.tps
        self.held.grant(added)
        self._subscription._notify_assignment_waiters()
        self._fetcher._notify(self._fetcher._wait_consume_future)  # so that it looks at once
        if added or not self._announced:
            self._announced = True
            await self._tell("on_partitions_assigned", added)

    def _adopt(self, subscription: Subscription) -> bool:
        """Carry all that is held over to a new subscription; False if it is not a new one."""
        if subscription.assignment is self.held:
            return False
        self.held = _Held(self.held.states())
        subscription._assignment = self.held
        subscription._reassignment_in_progress = False
        if self.held.tps:
            self.request_rejoin()
            self._subscription._notify_assignment_waiters()  # the fetcher goes on with it
        return True

    # Giving up

    async def _revoke(self, taken: set[TopicPartition]) -> None:
        if taken:
            self.held.pause(taken)
            await self._tell("on_partitions_revoked", taken)
            self._release(taken)

    async def _report_lost(self) -> None:
        lost = set(self.held.tps)
        told = hasattr(self._subscription.listener, "on_partitions_lost")
        await self._tell("on_partitions_lost" if told else "on_partitions_revoked", lost)
        self._release(lost)
        self._lost = False

    def _release(self, partitions: set[TopicPartition]) -> None:
        self.held.release(partitions)
        for tp in partitions:
            self._fetcher._records.pop(tp, None)

    async def _tell(self, method: str, partitions: set[TopicPartition]) -> None:
        if self._subscription.listener is None:
            return
        try:
            answer = getattr(self._subscription.listener, method)(set(partitions))
            if inspect.isawaitable(answer):
                await answer
        except Exception:
            # The rebalance goes on, as in aiokafka: the group would only wait, then put this member out.
            logger.exception("listener-failed", group=self.group_id, method=method)

    def reset_generation(self) -> None:
        """Called when Kafka does not know this member any more: from now on nothing that it holds counts."""
        super().reset_generation()
        self._synced_generation = NO_GENERATION
        self.lease.end()
        self._announced = False
        self._lost = bool(self.held.tps)
        self.held.pause(self.held.tps)

    async def _coordination_routine(self) -> None:
        """When the consumer stops give everything back, while heartbeats still go on."""
        await super()._coordination_routine()
        if self._lost:
            await self._report_lost()
        await self._revoke(set(self.held.tps))

    # Requests

    async def commit_offsets(self, assignment: Assignment, offsets: Mapping[TopicPartition, Any]) -> None:
        """Note how each partition is held now, in place of the assignment: aiokafka only passes it on."""
        await super().commit_offsets({tp: assignment.state_value(tp) for tp in offsets}, offsets)

    async def _do_commit_offsets(
        self, assignment: Mapping[TopicPartition, TopicPartitionState], offsets: Mapping[TopicPartition, Any]
    ) -> None:
        """Fence: aiokafka commits what has waited with the generation of now, or as nobody's without one."""
        states = self.held.states()
        if self._lost or any(states.get(tp) is not state for tp, state in assignment.items()):
            raise IllegalGenerationError("given away or lost meanwhile")  # becomes a CommitFailedError
        await super()._do_commit_offsets(assignment, offsets)

    async def _send_req(self, request: Any) -> Any:
        if isinstance(request, OffsetFetchRequest):
            # On the fetches' connection: JoinGroup holds the other for as long as the slowest member takes,
            # and a partition that waits for its committed offset keeps all others of its broker waiting.
            if self.coordinator_id is None:
                raise GroupCoordinatorNotAvailableError
            return await self._client.send(self.coordinator_id, request)
        sent = time.monotonic()
        answer = await super()._send_req(request)
        if isinstance(request, HeartbeatRequest | SyncGroupRequest):
            self.lease.answered(sent, for_code(answer.error_code))
        return answer

    @contextlib.asynccontextmanager
    async def _heartbeats_while_joining(self) -> AsyncIterator[None]:
        """Heartbeats on the fetches' connection, while JoinGroup holds the other until the last one joins.

        Kafka keeps a member that waits in JoinGroup anyway. These are the proof: partitions that stay are
        worked on meanwhile, and that work may depend on `last_heartbeat_monotonic_s`.
        """
        beating = asyncio.create_task(self._heartbeat_until_unknown(self.generation, self.member_id))
        try:
            yield
        finally:
            beating.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await beating

    async def _heartbeat_until_unknown(self, generation: int, member_id: str) -> None:
        alive = generation != NO_GENERATION
        while alive:
            await asyncio.sleep(self._heartbeat_interval_ms / 1000)
            sent = time.monotonic()
            with contextlib.suppress(KafkaError):
                request = HeartbeatRequest(self.group_id, generation, member_id)
                answer = await self._client.send(self.coordinator_id, request)
                alive = self.lease.answered(sent, for_code(answer.error_code), joining=True)


_TAKEN_FOR_GRANTED: Final[Mapping[type, Mapping[str, str]]] = {
    AIOKafkaConsumer: {"start": "GroupCoordinator _coordinator _fetcher wait_for_assignment"},
    GroupCoordinator: {
        "__init__": "assignors generation member_id _commit_lock _rebalance_timeout_ms _performed_join_prepare",
        "ensure_active_group": "subscription prev_assignment _on_join_prepare _do_rejoin_group",
        "_on_join_prepare": "previous_assignment _group_subscription",
        "_do_rejoin_group": "subscription CoordinatorGroupRebalance perform_group_join _on_join_complete",
        "_perform_assignment": "response members _group_subscription _metadata_snapshot",
        "_on_join_complete": "start_commit_offsets_refresh_task",
        "reset_generation": "generation member_id request_rejoin",
        "commit_offsets": "assignment offsets _commit_lock _do_commit_offsets CommitFailedError",
        "_do_commit_offsets": "assignment offsets generation member_id _send_req",
        "_do_heartbeat": "_send_req reset_generation",
        "_send_req": "request coordinator_id",
    },
    CoordinatorGroupRebalance: {
        "perform_group_join": "_assignors metadata name _send_req reset_generation",
        "_on_join_leader": "_perform_assignment",
    },
    Assignment: {"__init__": "_topic_partitions _tp_state", "requesting_committed": "_committed_futs"},
    Subscription: {"_assign": "_assignment _reassignment_in_progress"},
    SubscriptionState: {"assign_from_subscribed": "_notify_assignment_waiters"},
    TopicPartitionState: {"__init__": "_assignment _position _position_fut _committed_futs"},
    Fetcher: {
        "__init__": "_records _wait_consume_future",
        "_get_actions_per_node": "tps state_value _records _fetch_max_wait_ms",
        "_proc_fetch_request": "topics state_value has_valid_position highwater",
    },
}
"""Of aiokafka's classes: the methods that are replaced, called or relied on here, and names each uses."""


def check_aiokafka() -> None:
    """Look whether the installed aiokafka is still, inside, what this module is built on.

    Raises:
        Misconfigured: it is not; says where it differs.
    """
    differences = [
        f"{owner.__name__}.{method} has no {name}"
        for owner, methods in _TAKEN_FOR_GRANTED.items()
        for method, names in methods.items()
        for name in names.split()
        if name not in _names(getattr(owner, method, None))
    ]
    if differences:
        raise Misconfigured(
            f"aiokafka {aiokafka.__version__} is not what {__name__} was written for: "
            f"{'; '.join(differences)}. Install the locked release, or mend that module by its tests"
        )


def _names(function: Any) -> tuple[str, ...]:
    code = getattr(function, "__code__", None)
    return code.co_names + code.co_varnames if isinstance(code, CodeType) else ()
