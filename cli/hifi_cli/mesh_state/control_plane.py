"""What commands ask of the control plane: declare pipes, read how far they are, and stop or hasten a rollout."""

import asyncio
import contextlib
import getpass
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from aiokafka.errors import KafkaError

from hifi.clock import MICROSECONDS, now_us
from hifi.control import declaration, rollout_status, verdict
from hifi.control.declaration import Declaration
from hifi.control.request import Request, RequestKind
from hifi.control.rollout_status import RolloutState, RolloutStatus
from hifi.control.topic_follower import TopicFollower
from hifi.control.verdict import Condition, Verdict
from hifi.errors import Misconfigured
from hifi.event import Record
from hifi.kafka.producer import Producer
from hifi.pipe.model import Pipe
from hifi.topics import ControlTopics

_CLIENT: Final = "hifi-cli"
_ANSWER_S: Final = 15


@dataclass(frozen=True, slots=True)
class ControlPlane:
    """The control plane of a mesh.

    Attributes:
        kafka: bootstrap servers of its Kafka.
        topics: its topics.
    """

    kafka: str
    topics: ControlTopics

    async def declare(self, pipes: Mapping[str, Pipe | None]) -> None:
        """Declare pipes; None deletes one.

        Raises:
            Misconfigured: Kafka does not answer.
        """
        author, now = _author(), now_us()
        await self._write(
            self.topics.declared,
            [Declaration(name, pipe, author, now).record() for name, pipe in pipes.items()],
        )

    async def declared(self) -> Mapping[str, Declaration]:
        """Pipe to its newest declaration.

        Raises:
            Misconfigured: Kafka does not answer.
        """
        found: dict[str, Declaration] = {}

        def take(key: bytes | None, value: bytes | None, offset: int) -> None:
            """Keep the newest declaration of each pipe."""
            one = declaration.decode(key, value, offset)
            found[one.name] = one

        await self._read(self.topics.declared, take)
        return found

    async def statuses(self) -> Mapping[str, RolloutStatus]:
        """Pipe to how far its newest declaration is; `waiting` where the provisioner has not seen it yet.

        Raises:
            Misconfigured: Kafka does not answer.
        """
        told: dict[str, RolloutStatus] = {}

        def take(_: bytes | None, value: bytes | None, __: int) -> None:
            """Keep the newest status of each pipe."""
            one = rollout_status.decode(value)
            told[one.pipe] = one

        declared = await self.declared()
        await self._read(self.topics.rollouts, take)
        return {
            name: told[name] if name in told and told[name].declaration >= one.number else _unseen(one)
            for name, one in sorted(declared.items())
        }

    async def verdicts(self) -> list[Verdict]:
        """Observe's verdicts, by scope; those that are too old to count are `unknown`.

        Raises:
            Misconfigured: Kafka does not answer.
        """
        found: dict[str, Verdict] = {}

        def take(_: bytes | None, value: bytes | None, __: int) -> None:
            """Keep the newest verdict on each scope."""
            one = verdict.decode(value or b"")
            found[one.scope] = one

        await self._read(self.topics.health, take)
        oldest_us = now_us() - verdict.VALID_S * MICROSECONDS
        return [
            one
            if one.at_us >= oldest_us
            else replace(one, condition=Condition.UNKNOWN, reasons=("observe gives no verdict",))
            for _, one in sorted(found.items())
        ]

    async def ask(self, pipe: str, kind: RequestKind) -> RolloutStatus:
        """Ask something of the provisioner about the newest declaration of a pipe; returns its status before.

        Raises:
            Misconfigured: the pipe has no rollout that could do this, or Kafka does not answer.
        """
        status = (await self.statuses()).get(pipe)
        if status is None:
            raise Misconfigured(f"no pipe {pipe} was declared; `hifi rollout status` lists those that were")
        if status.state.final:
            raise Misconfigured(f"the rollout of {pipe} has ended: it is {status.state.value}")
        request = Request(pipe, status.declaration, kind, _author(), now_us(), status.share)
        await self._write(self.topics.requests, [request.record()])
        return status

    async def _write(self, topic: str, records: Sequence[Record]) -> None:
        async with self._answering():
            producer = Producer(self.kafka, _CLIENT)
            await producer.start()
            try:
                await producer.send_and_wait(topic, 0, list(records))
            finally:
                await producer.stop()

    async def _read(self, topic: str, take: Callable[[bytes | None, bytes | None, int], None]) -> None:
        async with self._answering():
            follower = TopicFollower(self.kafka, topic, _CLIENT, take)
            try:
                await follower.start()
            finally:
                await follower.stop()

    @contextlib.asynccontextmanager
    async def _answering(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(_ANSWER_S):
                yield
        except (TimeoutError, KafkaError, OSError) as error:
            raise Misconfigured(
                f"the control plane's Kafka at {self.kafka} does not answer ({error!r}); is the mesh running, and is "
                f"{self.topics.control} its control plane?"
            ) from error


def _unseen(wanted: Declaration) -> RolloutStatus:
    reason = "the provisioner has not seen it yet"
    return RolloutStatus(
        wanted.name, wanted.number, wanted.author, RolloutState.WAITING, None, 0, reason, wanted.at_us
    )


def _author() -> str:
    return f"{getpass.getuser()}@{socket.gethostname()}"
