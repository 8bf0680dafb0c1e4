"""A cooperative group on a real Kafka: members come, go and are put out; nothing is lost or read twice."""

import asyncio
import math
import os
import threading
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Self, TypeAlias

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.consumer.group_coordinator import GroupCoordinator
from aiokafka.errors import (
    CommitFailedError,
    ConsumerStoppedError,
    NoError,
    RebalanceInProgressError,
    UnknownMemberIdError,
)
from aiokafka.protocol.group import LeaveGroupRequest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from aiokafka_cooperative import coordinator as cooperative
from aiokafka_cooperative.assignor import Member, decode_member
from aiokafka_cooperative.coordinator import CooperativeConsumer, Lease
from hifi.errors import Misconfigured
from hifi_infra.java.jars import kafka_jars
from hifi_infra.java.jdk import find_java

WITHIN_S = 60
SESSION_S = 6
HEARTBEAT_S = 0.3
REBALANCE_S = 25

JAVA_MEMBER = Path(__file__).with_name("JavaMember.java")

Seen = list[tuple[str, str, int, int]]
"""(member, topic, partition, offset) of each record, as it was worked on."""


async def until(condition: Callable[[], Any], what: str, within_s: float = WITHIN_S) -> None:
    """Poll for a condition, with a bound."""
    try:
        async with asyncio.timeout(within_s):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"not within {within_s} s: {what}")


class Traffic:
    """A producer that goes on for as long as the test runs."""

    def __init__(self, kafka: str, topics: Iterable[str], partitions: int) -> None:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=kafka, acks="all", enable_idempotence=True, linger_ms=5
        )
        self._targets = [(topic, number) for topic in topics for number in range(partitions)]
        self.sent: Counter[tuple[str, int]] = Counter()
        self._stopping = False
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._producer.start()
        self._task = asyncio.create_task(self._run())
        return self

    async def _run(self) -> None:
        while not self._stopping:
            for topic, number in self._targets:
                await self._producer.send(topic, b"%d" % self.sent[topic, number], partition=number)
                self.sent[topic, number] += 1
            await asyncio.sleep(0.01)

    async def end(self) -> None:
        self._stopping = True
        if self._task is not None:
            await self._task
        await self._producer.flush()

    async def __aexit__(self, *_: object) -> None:
        await self.end()
        await self._producer.stop()


class Ours(ConsumerRebalanceListener):  # type: ignore[misc]
    """A member with a CooperativeConsumer that works as a service does: read, work, commit now and then."""

    def __init__(self, kafka: str, group: str, topics: Iterable[str], seen: Seen, name: str) -> None:
        self.name = name
        self.consumer = CooperativeConsumer(
            bootstrap_servers=kafka,
            group_id=group,
            client_id=name,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_S * 1000,
            heartbeat_interval_ms=int(HEARTBEAT_S * 1000),
            rebalance_timeout_ms=REBALANCE_S * 1000,
        )
        self.consumer.subscribe(list(topics), listener=self)
        self.calls: list[tuple[str, set[TopicPartition]]] = []
        self.drain: Callable[[], Awaitable[object]] | None = None
        self.done: dict[TopicPartition, int] = {}
        self.uncommitted: Counter[TopicPartition] = Counter()
        self.read_again = 0
        self.refused = 0
        self._seen = seen
        self._busy = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def assigned(self) -> set[TopicPartition]:
        return set(self.consumer.assignment())

    @property
    def leads(self) -> bool:
        return self.consumer._coordinator._group_subscription is not None

    async def start(self) -> Self:
        await self.consumer.start()
        self._tasks = [asyncio.create_task(self._work()), asyncio.create_task(self._commit_often())]
        return self

    async def stop(self) -> None:
        """A clean leave: the consumer revokes everything, which commits, and leaves the group."""
        await self.consumer.stop()
        await self.end_work()

    def check(self) -> None:
        for task in self._tasks:
            if task.done():
                task.result()

    async def end_work(self) -> None:
        for task in self._tasks:
            task.cancel()
        ends = await asyncio.gather(*self._tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError | ConsumerStoppedError) for end in ends), ends

    async def _work(self) -> None:
        while True:
            batches = await self.consumer.getmany(timeout_ms=100, max_records=50)
            async with self._busy:
                for tp, records in batches.items():
                    self._seen.extend(
                        (self.name, tp.topic, tp.partition, record.offset) for record in records
                    )
                    self.done[tp] = records[-1].offset + 1
                    self.uncommitted[tp] += len(records)

    async def _commit_often(self) -> None:
        while True:
            await asyncio.sleep(0.05)
            await self._commit(set(self.done))

    async def _commit(self, partitions: set[TopicPartition]) -> None:
        partitions = partitions & self.done.keys() & self.assigned
        if not partitions:
            return
        counts = {tp: self.uncommitted[tp] for tp in partitions}
        try:
            await self.consumer.commit({tp: self.done[tp] for tp in partitions})
            self.uncommitted.subtract(counts)
        except CommitFailedError:
            self.refused += 1

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self.calls.append(("assigned", assigned))

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.calls.append(("revoked", revoked))
        if self.drain is not None:
            await self.drain()
        async with self._busy:  # a batch under way is finished
            await self._commit(revoked)
        for tp in revoked:
            self.done.pop(tp, None)

    async def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        self.calls.append(("lost", lost))
        for tp in lost:
            self.done.pop(tp, None)
            self.read_again += self.uncommitted.pop(tp, 0)

    def told(self, kind: str) -> list[set[TopicPartition]]:
        return [partitions for call, partitions in self.calls if call == kind]


_WHILE_JOINING = (
    confluent_kafka.KafkaError.REBALANCE_IN_PROGRESS,
    confluent_kafka.KafkaError.ILLEGAL_GENERATION,
)


class Theirs:
    """A member with librdkafka's own cooperative consumer, in a thread."""

    def __init__(self, kafka: str, group: str, topics: Iterable[str], seen: Seen, name: str) -> None:
        self.name = name
        self._consumer: Any = confluent_kafka.Consumer(
            {
                "bootstrap.servers": kafka,
                "group.id": group,
                "client.id": name,
                "partition.assignment.strategy": "cooperative-sticky",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": SESSION_S * 1000,
                "heartbeat.interval.ms": int(HEARTBEAT_S * 1000),
                "fetch.wait.max.ms": 50,
            }
        )
        self._topics = list(topics)
        self._seen = seen
        self._done: dict[tuple[str, int], int] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.assigned: set[TopicPartition] = set()
        self.known = False
        self.lost = 0
        self._error: BaseException | None = None

    async def start(self) -> Self:
        self._thread.start()
        await until(lambda: self.known, f"{self.name} joined")
        return self

    async def stop(self) -> None:
        self._stopping.set()
        await asyncio.to_thread(self._thread.join, WITHIN_S)
        self.check()

    def check(self) -> None:
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._consumer.subscribe(
                self._topics, on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lose
            )
            while not self._stopping.is_set():
                for record in self._consumer.consume(50, 0.05):
                    assert not record.error(), record.error()
                    self._seen.append((self.name, record.topic(), record.partition(), record.offset()))
                    self._done[record.topic(), record.partition()] = record.offset() + 1
                self._commit(self._done)
        except BaseException as error:  # noqa: BLE001 - told by check()
            self._error = error
        finally:
            self._consumer.close()

    def _commit(self, partitions: Iterable[tuple[str, int]]) -> None:
        offsets = [
            confluent_kafka.TopicPartition(*tp, self._done[tp]) for tp in partitions if tp in self._done
        ]
        if offsets:
            try:
                self._consumer.commit(offsets=offsets, asynchronous=False)
            except confluent_kafka.KafkaException as error:
                # It does not hold commits back while it joins. The next commit says the same and more.
                if error.args[0].code() not in _WHILE_JOINING:
                    raise

    def _assign(self, consumer: Any, partitions: list[Any]) -> None:
        consumer.incremental_assign(partitions)
        self.assigned = self.assigned | {TopicPartition(tp.topic, tp.partition) for tp in partitions}
        self.known = True

    def _revoke(self, consumer: Any, partitions: list[Any]) -> None:
        self._commit([(tp.topic, tp.partition) for tp in partitions])
        consumer.incremental_unassign(partitions)
        self._forget(partitions)

    def _lose(self, consumer: Any, partitions: list[Any]) -> None:
        self.lost += len(partitions)
        consumer.incremental_unassign(partitions)
        self._forget(partitions)

    def _forget(self, partitions: list[Any]) -> None:
        for tp in partitions:
            self._done.pop((tp.topic, tp.partition), None)
        self.assigned = self.assigned - {TopicPartition(tp.topic, tp.partition) for tp in partitions}


class Javas:
    """A member with Java's own cooperative consumer, in a process: see JavaMember.java."""

    def __init__(self, kafka: str, group: str, topics: Iterable[str], seen: Seen, name: str) -> None:
        self.name = name
        session, heartbeat = str(SESSION_S * 1000), str(int(HEARTBEAT_S * 1000))
        jars = os.pathsep.join(map(str, kafka_jars()))
        # One compiler and a small heap: it shares the machine with the broker and the others.
        options = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m", "-cp", jars]
        self._command = [
            str(find_java().executable),
            *options,
            str(JAVA_MEMBER),
            kafka,
            group,
            session,
            heartbeat,
        ]
        self._command += topics
        self._seen = seen
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self.assigned: set[TopicPartition] = set()
        self.known = False
        self.lost = 0

    async def start(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*self._command, stdin=pipe, stdout=pipe)
        self._reading = asyncio.create_task(self._read())
        await until(lambda: self.known or self._reading.done(), f"{self.name} joined")  # type: ignore[union-attr]
        return self

    async def stop(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            async with asyncio.timeout(WITHIN_S):
                assert await self._process.wait() == 0
        finally:
            if self._process.returncode is None:
                self._process.kill()

    def check(self) -> None:
        assert self._process is not None
        assert self._process.returncode in (None, 0)

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            what, *words = line.decode().split()
            if what == "record":
                self._seen.append((self.name, words[0], int(words[1]), int(words[2])))
            else:
                split = [word.rsplit(":", 1) for word in words]
                partitions = {TopicPartition(topic, int(number)) for topic, number in split}
                self.assigned = (
                    self.assigned | partitions if what == "assigned" else self.assigned - partitions
                )
                self.lost += len(partitions) * (what == "lost")
                self.known = True


AnyMember: TypeAlias = Ours | Theirs | Javas


class Group:
    """A group on topics of its own, with the traffic through them and all that its members saw."""

    def __init__(self, kafka: str, topics: list[str], partitions: int) -> None:
        self.kafka = kafka
        self.topics = topics
        self.all = {TopicPartition(topic, number) for topic in topics for number in range(partitions)}
        self.id = f"group.{uuid.uuid4().hex[:12]}"
        self.seen: Seen = []
        self.traffic = Traffic(kafka, topics, partitions)
        self.members: list[AnyMember] = []
        self._admin: Any = AdminClient({"bootstrap.servers": kafka})

    def ours(self) -> Ours:
        """One more member with our consumer; it is still to be started."""
        member = Ours(self.kafka, self.id, self.topics, self.seen, f"ours-{len(self.members)}")
        self.members.append(member)
        return member

    def theirs(self) -> Theirs:
        """One more member with librdkafka's consumer; it is still to be started."""
        member = Theirs(self.kafka, self.id, self.topics, self.seen, f"theirs-{len(self.members)}")
        self.members.append(member)
        return member

    def javas(self) -> Javas:
        """One more member with Java's consumer; it is still to be started."""
        member = Javas(self.kafka, self.id, self.topics, self.seen, f"javas-{len(self.members)}")
        self.members.append(member)
        return member

    async def leave(self, member: AnyMember) -> None:
        self.members.remove(member)
        await member.stop()

    async def balanced(self) -> None:
        """Wait until all partitions are assigned, evenly, and each once."""

        def even() -> bool:
            for member in self.members:
                member.check()
            loads = [len(member.assigned) for member in self.members]
            union = set().union(*(member.assigned for member in self.members))
            return union == self.all and sum(loads) == len(self.all) and max(loads) - min(loads) <= 1

        await until(even, "all partitions are assigned evenly")
        # One who has nothing to gain or to give may still be joining. librdkafka's consumer does not hold commits
        # back meanwhile, so its commit as it leaves would be refused.
        async with asyncio.timeout(WITHIN_S):
            while await asyncio.to_thread(self._state) is not ConsumerGroupState.STABLE:
                pass

    def _state(self) -> ConsumerGroupState:
        described = self._admin.describe_consumer_groups([self.id])[self.id]
        state: ConsumerGroupState = described.result().state
        return state

    def count(self, member: AnyMember, tp: TopicPartition) -> int:
        return sum(name == member.name and (topic, number) == tp for name, topic, number, _ in self.seen)

    async def more_of(
        self, member: AnyMember, partitions: Iterable[TopicPartition], records: int = 20
    ) -> None:
        """Wait until the member has worked on so many more records of each of the partitions."""
        before = {tp: self.count(member, tp) for tp in partitions}
        await until(
            lambda: all(self.count(member, tp) >= many + records for tp, many in before.items()),
            f"{member.name} goes on with {sorted(before)}",
        )

    async def finish(self) -> tuple[int, int, int]:
        """End the traffic, read to its end, leave: (sent, lost, worked on twice)."""
        await self.traffic.end()
        sent = {(*tp, offset) for tp, many in self.traffic.sent.items() for offset in range(many)}
        await until(lambda: {entry[1:] for entry in self.seen} >= sent, "all records were seen")
        for member in list(self.members):
            await self.leave(member)
        times = Counter(entry[1:] for entry in self.seen)
        return len(sent), len(sent - times.keys()), sum(many - 1 for many in times.values())


MakeGroup = Callable[..., Any]


@pytest.fixture
def group(kafka: str) -> MakeGroup:
    """`async with group(partitions=6) as group`: a group, whose traffic runs."""

    @asynccontextmanager
    async def make(partitions: int, topics: int = 1) -> AsyncIterator[Group]:
        names = [f"cooperative.{uuid.uuid4().hex[:12]}" for _ in range(topics)]
        admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(name, partitions, 1) for name in names])
        finally:
            await admin.close()
        group = Group(kafka, names, partitions)
        async with group.traffic:
            try:
                yield group
            finally:
                await asyncio.gather(*(member.stop() for member in group.members), return_exceptions=True)

    return make


async def test_no_record_is_lost_or_worked_on_twice_while_members_come_and_go(group: MakeGroup) -> None:
    async with group(partitions=6, topics=2) as g:
        first = await g.ours().start()
        await g.balanced()
        second = await g.ours().start()
        await g.balanced()
        third, fourth = g.ours(), g.ours()
        await asyncio.gather(third.start(), fourth.start())  # both in one rebalance, or in two that overlap
        await g.balanced()
        await g.leave(second)
        await g.balanced()
        await g.leave(first)  # the leader
        await g.balanced()
        for member in (third, fourth):
            await g.more_of(member, member.assigned)
        sent, lost, twice = await g.finish()
    assert (lost, twice) == (0, 0), f"of {sent}"
    assert not any(member.told("lost") for member in (first, second, third, fourth))


async def test_only_what_moves_is_revoked_and_announced(group: MakeGroup) -> None:
    async with group(partitions=6) as g:
        first = await g.ours().start()
        assert first.told("assigned") == [g.all]
        second = await g.ours().start()
        await g.balanced()
        third = await g.ours().start()
        await g.balanced()
        await g.leave(third)
        await g.balanced()
        # 6 > 3+3 > 2+2+2 > 3+3: three, then one each, move, and come back
        assert [len(taken) for taken in first.told("revoked")] == [3, 1]
        assert [len(taken) for taken in second.told("revoked")] == [1]
        for member in (first, second):
            held: set[TopicPartition] = set()
            for call, partitions in member.calls:
                assert held.isdisjoint(partitions) if call == "assigned" else partitions <= held
                held ^= partitions
            assert held == member.assigned


async def test_partitions_that_stay_never_stop(group: MakeGroup) -> None:
    async with group(partitions=8) as g:
        first = await g.ours().start()
        second = await g.ours().start()
        await g.balanced()
        paused = max(second.assigned)
        second.consumer.pause(paused)
        states = {member: member.consumer._coordinator.held.states() for member in (first, second)}
        dropped = {member: dropped_fetches(member) for member in (first, second)}

        # A third one joins. The first one gives it a partition, and takes its time.
        draining, may_end = asyncio.Event(), asyncio.Event()

        async def drain() -> None:
            draining.set()
            await may_end.wait()

        first.drain = drain
        third = await g.ours().start()
        try:
            await asyncio.wait_for(draining.wait(), WITHIN_S)
            assert len(first.told("revoked")[-1]) == 1, "all others stay"
            (taken,) = first.told("revoked")[-1]
            final = g.count(first, taken)
            # The second one, which has given its partition already, waits for the first one in JoinGroup.
            joining = second.consumer._coordinator._commit_lock
            await until(lambda: joining.locked() and len(second.assigned) == 3, "the second one joins again")
            heartbeats = {member: member.consumer.last_heartbeat_monotonic_s for member in (first, second)}
            # A partition that is new to it would need this to begin, and keep the others waiting until then.
            await asyncio.wait_for(second.consumer.committed(paused), HEARTBEAT_S * 10)
            for _ in range(3):  # far longer than anything that a rebalance of moments could hide
                await g.more_of(first, first.assigned - {taken}, 40)
                await g.more_of(second, second.assigned - {paused}, 40)
                assert joining.locked(), "all within one JoinGroup"
            for member, before in heartbeats.items():
                assert member.consumer.last_heartbeat_monotonic_s > before
                assert time.monotonic() - member.consumer.last_heartbeat_monotonic_s < 4 * HEARTBEAT_S
            assert g.count(first, taken) == final, "what is given away rests"
        finally:
            may_end.set()
        await g.balanced()

        for member in (first, second):
            now = member.consumer._coordinator.held.states()
            assert len(now) == 3
            assert all(now[tp] is states[member][tp] for tp in now), "position, pause and all"
            assert dropped[member] == []
        assert second.consumer.paused() == {paused}
        assert g.count(second, paused) < g.traffic.sent[paused]
        second.consumer.resume(paused)
        _, lost, twice = await g.finish()
    assert (lost, twice) == (0, 0)
    assert [len(partitions) for _, partitions in third.calls[:2]] == [0, 2]


def dropped_fetches(member: Ours) -> list[str]:
    """Requests of its fetcher whose answers are dropped from now on."""
    dropped: list[str] = []
    fetcher = member.consumer._fetcher
    fetch = fetcher._proc_fetch_request

    async def watched(assignment: Any, node_id: int, request: Any) -> Any:
        answer = asyncio.ensure_future(fetch(assignment, node_id, request))
        try:
            return await answer
        finally:
            if not answer.done() or not assignment.active:
                dropped.append(repr(request))

    fetcher._proc_fetch_request = watched
    return dropped


async def test_an_empty_assignment_is_announced_once(group: MakeGroup) -> None:
    async with group(partitions=1) as g:
        first, second = await g.ours().start(), await g.ours().start()
        await until(lambda: second.calls, "the second one knows its assignment")
        third = await g.ours().start()  # one more rebalance that brings the second one nothing
        await until(lambda: third.calls, "the third one knows its assignment")
        await until(lambda: len({m.consumer.membership.generation for m in g.members}) == 1, "one generation")
        assert first.calls == [("assigned", g.all)]
        assert second.calls == third.calls == [("assigned", set())]
        await g.leave(first)
        await g.balanced()
        assert Counter(len(partitions) for _, partitions in second.calls + third.calls) == {0: 2, 1: 1}


async def test_a_member_that_was_put_out_loses_everything_and_comes_back(
    group: MakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims: list[Member] = []

    def noted(data: bytes) -> Member:
        claims.append(decode_member(data))
        return claims[-1]

    monkeypatch.setattr(cooperative, "decode_member", noted)
    async with group(partitions=4) as g:
        first = await g.ours().start()
        second = await g.ours().start()
        await g.balanced()
        held, old = second.assigned, second.consumer.membership
        await g.more_of(second, held)

        await put_out(second)
        await until(lambda: second.told("lost"), "the loss is reported")
        assert second.told("lost") == [held]
        await g.balanced()
        assert second.consumer.membership.member_id not in ("", old.member_id)
        assert second.consumer.membership.generation > old.generation
        for member in (first, second):
            await g.more_of(member, member.assigned)
        sent, lost, twice = await g.finish()
    assert second.told("revoked") == [second.told("assigned")[-1]], "what was lost was not revoked, too"
    assert not any(member.owned for member in claims if member.generation < 0), (
        "it claims nothing of the past"
    )
    assert lost == 0
    assert twice <= second.read_again, f"of {sent}"


async def put_out(member: Ours) -> None:
    """Kafka forgets a member that knows nothing of it, as it does when heartbeats stay away."""
    coordinator = member.consumer._coordinator
    await coordinator._send_req(LeaveGroupRequest(coordinator.group_id, coordinator.member_id))


async def test_a_listener_without_on_partitions_lost_is_told_that_they_are_revoked(
    group: MakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Ours, "on_partitions_lost")
    async with group(partitions=2) as g:
        member = await g.ours().start()
        await put_out(member)
        await until(lambda: len(member.told("assigned")) == 2, "it is back")
        assert member.calls == [("assigned", g.all), ("revoked", g.all), ("assigned", g.all)]


async def test_a_commit_of_what_was_lost_meanwhile_is_refused(group: MakeGroup) -> None:
    async with group(partitions=2) as g:
        member = await g.ours().start()
        await g.more_of(member, g.all)
        await member.end_work()
        coordinator = member.consumer._coordinator
        committed = {tp: await member.consumer.committed(tp) for tp in g.all}

        # The commit has begun when the membership ends, and goes on when all is assigned again.
        async with coordinator._commit_lock:
            offsets = {tp: member.done[tp] + 1_000_000 for tp in g.all}
            late = asyncio.create_task(member.consumer.commit(offsets))
            await asyncio.sleep(0)
            await put_out(member)
            coordinator.reset_generation()  # as the next heartbeat would
            assert member.consumer.membership == (-1, "")
            assert member.consumer.last_heartbeat_monotonic_s == -math.inf
            await asyncio.sleep(0)
        with pytest.raises(CommitFailedError):
            await late
        await until(lambda: len(member.told("assigned")) == 2, "it is back")
        assert {tp: await member.consumer.committed(tp) for tp in g.all} == committed


async def test_no_commit_is_under_way_from_join_to_sync(
    group: MakeGroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way: Counter[str] = Counter()
    sent: Counter[str] = Counter()
    overlaps: list[str] = []
    send = cooperative.CooperativeCoordinator._send_req

    async def noted(self: Any, request: Any) -> Any:
        kind = type(request).__name__.removesuffix("Request")
        mine = self._client._client_id == "ours-0"
        if mine:
            sent[kind] += 1
            under_way[kind] += 1
            if under_way["OffsetCommit"] and under_way["JoinGroup"] + under_way["SyncGroup"]:
                overlaps.append(kind)
        answer = await send(self, request)
        under_way[kind] -= mine
        return answer

    monkeypatch.setattr(cooperative.CooperativeCoordinator, "_send_req", noted)
    async with group(partitions=4) as g:
        first = await g.ours().start()
        await g.more_of(first, g.all)
        for _ in range(3):
            other = await g.ours().start()
            await g.balanced()
            await g.leave(other)
            await g.balanced()
    assert overlaps == []
    assert sent["JoinGroup"] >= 9
    assert sent["OffsetCommit"] > 20


async def test_a_changed_subscription_takes_only_what_is_no_longer_wanted(group: MakeGroup) -> None:
    async with group(partitions=3, topics=2) as g:
        member = await g.ours().start()
        await g.more_of(member, g.all)
        old, new = g.topics
        states = member.consumer._coordinator.held.states()
        member.consumer.subscribe([new], listener=member)
        kept = {tp for tp in g.all if tp.topic == new}
        await until(lambda: member.assigned == kept, "the new assignment")
        assert member.told("revoked") == [g.all - kept]
        assert all(state is states[tp] for tp, state in member.consumer._coordinator.held.states().items())
        await g.more_of(member, kept)
        member.consumer.subscribe([old, new], listener=member)
        await until(lambda: member.assigned == g.all, "all again")
        assert member.told("assigned") == [g.all, g.all - kept]
        _, lost, twice = await g.finish()
    assert (lost, twice) == (0, 0)


@pytest.mark.parametrize("others", ["theirs", "javas"], ids=["librdkafka", "java"])
@pytest.mark.parametrize("ours_first", [True, False], ids=["ours-leads", "theirs-leads"])
async def test_it_shares_a_group_with_other_clients(
    group: MakeGroup, others: str, *, ours_first: bool
) -> None:
    async with group(partitions=6, topics=2) as g:
        first, second = (g.ours, getattr(g, others)) if ours_first else (getattr(g, others), g.ours)
        members = []
        for make in (first, second, first):
            members.append(await make().start())
            await g.balanced()
        ours = [member for member in members if isinstance(member, Ours)]
        assert [member.leads for member in ours] == ([True, False] if ours_first else [False])
        for member in members:
            await g.more_of(member, member.assigned)
        await g.leave(members[0])  # another one leads
        await g.balanced()
        members.append(await second().start())
        await g.balanced()
        await g.leave(members[2])
        await g.balanced()
        for member in g.members:
            await g.more_of(member, member.assigned)
        sent, lost, twice = await g.finish()
    assert (lost, twice) == (0, 0), f"of {sent}"
    for member in members:
        assert not (member.told("lost") if isinstance(member, Ours) else member.lost)


def test_the_lease_grows_with_good_heartbeats_only() -> None:
    lease = Lease(session_timeout_s=10, rebalance_timeout_s=30)
    assert lease.last_heartbeat_s == -math.inf
    assert lease.answered(100, NoError)
    assert not lease.answered(103, UnknownMemberIdError)
    assert lease.last_heartbeat_s == 100
    lease.end()
    assert lease.last_heartbeat_s == -math.inf


def test_the_lease_ends_before_a_rebalance_puts_out_who_does_not_join() -> None:
    lease = Lease(session_timeout_s=10, rebalance_timeout_s=30)
    lease.answered(100, NoError)
    # The rebalance begins after 100, so whoever has not joined is put out after 130: 10 more than it says.
    for sent, known in (103, 103), (119, 119), (123, 120), (129, 120):
        assert lease.answered(sent, RebalanceInProgressError)
        assert lease.last_heartbeat_s == known
    assert lease.answered(131, RebalanceInProgressError, joining=True)
    assert lease.last_heartbeat_s == 131, "it waits in JoinGroup"
    lease.answered(135, NoError)
    lease.answered(150, RebalanceInProgressError)
    assert lease.last_heartbeat_s == 150


def test_a_rebalance_timeout_no_longer_than_the_session_leaves_no_time() -> None:
    lease = Lease(session_timeout_s=10, rebalance_timeout_s=6)
    lease.answered(100, NoError)
    lease.answered(103, RebalanceInProgressError)
    assert lease.last_heartbeat_s == 100


async def test_what_is_let_go_has_no_position_for_answers_that_come_late() -> None:
    read, new = TopicPartition("some.topic", 0), TopicPartition("some.topic", 1)
    held = cooperative._Held({})
    held.grant({read, new})
    states = held.states()
    states[read].seek(7)
    waiting = states[new].wait_for_position()
    held.release({read, new})
    await asyncio.wait_for(waiting, WITHIN_S)  # to see that there is none
    assert not held.tps
    for tp, state in states.items():
        assert held.state_value(tp) is state, "aiokafka's fetcher looks for it, and then at these:"
        assert not state.has_valid_position
        assert state.paused
    held.grant({read})
    assert held.states()[read] is not states[read]


async def test_before_it_starts_it_is_nobody() -> None:
    consumer = CooperativeConsumer("some.topic", bootstrap_servers="127.0.0.1:1", group_id="some.group")
    assert consumer.membership == (-1, "")
    assert consumer.last_heartbeat_monotonic_s < 0
    with pytest.raises(ValueError, match="which offsets"):
        await consumer.commit()
    await consumer.stop()


async def test_what_it_cannot_do_is_refused_at_once() -> None:
    with pytest.raises(Misconfigured, match="group_id"):
        CooperativeConsumer("some.topic")
    with pytest.raises(Misconfigured, match="enable_auto_commit"):
        CooperativeConsumer("some.topic", group_id="some.group", enable_auto_commit=True)


async def test_the_installed_aiokafka_is_the_one_that_it_is_built_on() -> None:
    cooperative.check_aiokafka()


async def test_an_aiokafka_of_another_shape_is_refused_with_the_difference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def start(self: Any) -> None:
        self._coordinator = self._make_coordinator_in_some_new_way()

    monkeypatch.setattr(AIOKafkaConsumer, "start", start)
    monkeypatch.delattr(GroupCoordinator, "_do_rejoin_group")
    with pytest.raises(Misconfigured, match=r"start has no GroupCoordinator.*_do_rejoin_group has no subscr"):
        CooperativeConsumer("some.topic", group_id="some.group")


async def test_other_consumers_keep_their_own_coordinator(group: MakeGroup) -> None:
    async with group(partitions=2) as g:
        eager = AIOKafkaConsumer(*g.topics, bootstrap_servers=g.kafka, group_id=f"{g.id}.eager")
        await asyncio.gather(g.ours().start(), eager.start())
        assert type(eager._coordinator) is GroupCoordinator
        assert type(g.members[0].consumer._coordinator) is cooperative.CooperativeCoordinator
        await eager.stop()
