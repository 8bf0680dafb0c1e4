"""Members of a group with our consumer, librdkafka's and Java's, and the traffic through their topics."""

import asyncio
import os
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Self, TypeAlias

import confluent_kafka
import pytest
from aiokafka import AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import CommitFailedError, ConsumerStoppedError

from aiokafka_cooperative import CooperativeConsumer
from hifi.kafka.adaptive_fetcher import AdaptiveFetcher
from hifi_infra.java.jars import kafka_jars
from hifi_infra.java.jdk import find_java

WITHIN_S = 300
SESSION_S = 6
HEARTBEAT_S = 0.3
REBALANCE_S = 25

JAVA_MEMBER = Path(__file__).with_name("JavaMember.java")

ReadLog = list[tuple[str, str, int, int]]
"""(member, topic, partition, offset) of each record, as it was worked on."""


async def until(condition: Callable[[], Any], description: str, within_s: float = WITHIN_S) -> None:
    """Poll for a condition, with a bound."""
    try:
        async with asyncio.timeout(within_s):
            while not condition():
                await asyncio.sleep(0.01)
    except TimeoutError:
        pytest.fail(f"not within {within_s} s: {description}")


class TopicTraffic:
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

    def __init__(self, kafka: str, group: str, topics: Iterable[str], read_log: ReadLog, name: str) -> None:
        self.name = name
        self.consumer = CooperativeConsumer(
            bootstrap_servers=kafka,
            group_id=group,
            client_id=name,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_S * 1000,
            heartbeat_interval_ms=int(HEARTBEAT_S * 1000),
            rebalance_timeout_ms=REBALANCE_S * 1000,
            fetcher_class=AdaptiveFetcher,
            fetch_max_wait_ms=0,
        )
        self.consumer.subscribe(list(topics), listener=self)
        self.calls: list[tuple[str, set[TopicPartition]]] = []
        self.drain: Callable[[], Awaitable[object]] | None = None
        self.done: dict[TopicPartition, int] = {}
        self.uncommitted: Counter[TopicPartition] = Counter()
        self.read_again = 0
        self.refused = 0
        self._read_log = read_log
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
        results = await asyncio.gather(*self._tasks, return_exceptions=True)
        assert all(isinstance(end, asyncio.CancelledError | ConsumerStoppedError) for end in results), results

    async def _work(self) -> None:
        while True:
            batches = await self.consumer.getmany(timeout_ms=100, max_records=50)
            async with self._busy:
                for tp, records in batches.items():
                    self._read_log.extend(
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

    def __init__(self, kafka: str, group: str, topics: Iterable[str], read_log: ReadLog, name: str) -> None:
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
        self._read_log = read_log
        self._read_offsets: dict[tuple[str, int], int] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.assigned: set[TopicPartition] = set()
        self.joined = False
        self.lost = 0
        self._error: BaseException | None = None

    async def start(self) -> Self:
        self._thread.start()
        await until(lambda: self.joined, f"{self.name} joined")
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
                    self._read_log.append((self.name, record.topic(), record.partition(), record.offset()))
                    self._read_offsets[record.topic(), record.partition()] = record.offset() + 1
                self._commit(self._read_offsets)
        except BaseException as error:  # noqa: BLE001 - told by check()
            self._error = error
        finally:
            self._consumer.close()

    def _commit(self, partitions: Iterable[tuple[str, int]]) -> None:
        offsets = [
            confluent_kafka.TopicPartition(*tp, self._read_offsets[tp])
            for tp in partitions
            if tp in self._read_offsets
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
        self.joined = True

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
            self._read_offsets.pop((tp.topic, tp.partition), None)
        self.assigned = self.assigned - {TopicPartition(tp.topic, tp.partition) for tp in partitions}


class Javas:
    """A member with Java's own cooperative consumer, in a process: see JavaMember.java."""

    def __init__(self, kafka: str, group: str, topics: Iterable[str], read_log: ReadLog, name: str) -> None:
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
        self._read_log = read_log
        self._process: asyncio.subprocess.Process | None = None
        self._read_task: asyncio.Task[None] | None = None
        self.assigned: set[TopicPartition] = set()
        self.joined = False
        self.lost = 0

    async def start(self) -> Self:
        pipe = asyncio.subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*self._command, stdin=pipe, stdout=pipe)
        self._read_task = asyncio.create_task(self._read())
        await until(lambda: self.joined or self._read_task.done(), f"{self.name} joined")  # type: ignore[union-attr]
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
            kind, *words = line.decode().split()
            if kind == "record":
                self._read_log.append((self.name, words[0], int(words[1]), int(words[2])))
            else:
                split = [word.rsplit(":", 1) for word in words]
                partitions = {TopicPartition(topic, int(number)) for topic, number in split}
                self.assigned = (
                    self.assigned | partitions if kind == "assigned" else self.assigned - partitions
                )
                self.lost += len(partitions) * (kind == "lost")
                self.joined = True


AnyMember: TypeAlias = Ours | Theirs | Javas
