"""The content of the control plane's topics, and the changes that the API makes to them."""

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from hifi.control import rollout_status
from hifi.control.declaration import Declaration, Declarations
from hifi.control.declaration_log import DeclarationLog
from hifi.control.principals.audit import Audit, AuditEntry
from hifi.control.principals.audit_log import AuditLog
from hifi.control.principals.principal import Principals
from hifi.control.request import Request
from hifi.control.rollout_status import RolloutStatus, newest_statuses
from hifi.delivery.destination_state import DestinationStates
from hifi.kafka.last_uses import LastUses
from hifi.kafka.producer import Producer
from hifi.kafka.topic_follower import TopicFollower, TopicRecreated
from hifi.pipe.issued_key import IssuedKey, IssuedKeys, key_revocation
from hifi.pipe.registry import PipeRegistry
from hifi.record.record import Record
from hifi.runtime import log
from hifi.runtime.errors import Retryable
from hifi.runtime.health import Health
from hifi.runtime.http.problem import Problem
from hifi_manage.schemas.changes import RegistryChange
from hifi_manage.schemas.refusals import RegistryRefusal
from hifi_manage.schemas.schema_store import Plan, SchemaStore
from hifi_manage.settings import ManageSettings

_FRESH_S: Final = 10.0
"""Nobody is let in if the topics were not read for this long, since a token may have been revoked meanwhile."""
_READ_BACK_S: Final = 5.0
"""Longest time to read what was written; the next turn of the service reads it, too."""

logger = log.get(__name__)


class ControlState:
    """A copy of the control plane's topics, at most some seconds old, and the only way to change them.

    Args:
        settings: of the service.
        health: of the service, which waits for the pipes.
    """

    def __init__(self, settings: ManageSettings, health: Health) -> None:
        topics, kafka, name = settings.control_topics, settings.control_bootstrap, settings.instance
        self.registry = PipeRegistry(settings.kafka, settings.topics, health)
        self.principals = Principals()
        self.uses = LastUses()
        self.keys = IssuedKeys()
        self.key_uses = LastUses()
        self.audit = Audit(settings.manage_audit_entries)
        self.destinations = DestinationStates()
        self.schemas = SchemaStore(kafka, topics.schemas, topics.registrar, name)
        self._topics = topics
        self._log = DeclarationLog(kafka, topics.declared, name, settings.manage_versions)
        self._producer = Producer(kafka, name, health=health)
        self._audit_log = AuditLog(self._write_audit)
        self._statuses: dict[str, RolloutStatus] = {}
        self._stream_follower = TopicFollower(
            settings.kafka,
            name,
            {
                settings.topics.destinations: self.destinations.take,
                settings.topics.write_keys: self.keys.take,
                settings.topics.key_uses: self.key_uses.take,
            },
            rereads=False,
        )
        self._followers = [
            TopicFollower(
                kafka,
                name,
                {
                    topics.rollouts: self._take_status,
                    topics.principals: self.principals.take,
                    topics.audit: self.audit.take,
                    topics.last_used: self.uses.take,
                },
                rereads=False,
            ),
            self._stream_follower,
        ]
        self._stream_producer = Producer(settings.kafka, name, health=health)
        self._key_topic = settings.topics.write_keys
        self._read_s: float | None = None
        self._writing_uses: asyncio.Task[None] | None = None

    @property
    def task(self) -> asyncio.Task[None] | None:
        """Follows the pipes."""
        return self.registry.task

    async def start(self) -> None:
        """Connect and read everything; retries until Kafka answers."""
        await self._producer.start()
        await self._stream_producer.start()
        await self._log.start()
        await self.schemas.start()
        for follower in self._followers:
            await follower.start()
        await self.registry.start()
        self._read_s = time.monotonic()
        self._writing_uses = asyncio.create_task(self.uses.run(self._write_uses), name="write uses of tokens")

    async def stop(self) -> None:
        """Disconnect."""
        if self._writing_uses is not None:
            self._writing_uses.cancel()
            await asyncio.gather(self._writing_uses, return_exceptions=True)
        await self.registry.stop()
        for follower in self._followers:
            await follower.stop()
        await self.schemas.stop()
        await self._log.stop()
        await self._stream_producer.stop()
        await self._producer.stop()

    async def catch_up(self) -> None:
        """Read what is new. Not called by several tasks at the same time.

        Raises:
            aiokafka.errors.KafkaError: Kafka did not answer.
            TimeoutError: the same.
        """
        began_s = time.monotonic()
        async with asyncio.timeout(_FRESH_S):
            await self._log.catch_up()
            await self.schemas.catch_up()
            for follower in self._followers:
                await follower.catch_up()
        self._read_s = began_s

    @property
    def read(self) -> bool:
        """Whether the topics were ever read."""
        return self._read_s is not None

    @property
    def fresh(self) -> bool:
        """Whether the topics were read within the last 10 seconds."""
        return self._read_s is not None and time.monotonic() - self._read_s < _FRESH_S

    @property
    def declared(self) -> Declarations:
        """The declarations that count."""
        return self._log.declared

    def held(self, name: str) -> str | None:
        """The reason why a pipe must not be changed: it cannot be read as declared or in force; None: it may."""
        return self.declared.unreadable.get(name) or self.registry.held(name)

    def statuses(self) -> Mapping[str, RolloutStatus]:
        """Pipe to the rollout status of its newest declaration."""
        return newest_statuses(self.declared.newest, self._statuses)

    async def declare(self, entry: AuditEntry, declaration: Declaration) -> Declaration | None:
        """Declare a pipe; returns the declaration that counts, None if somebody else was first.

        Raises:
            Problem: 503, Kafka does not answer.
        """
        counted_declarations = await self._audit_log.changed(
            entry,
            partial(self._log.append, [declaration]),
            lambda counted_declarations: counted_declarations[0].number if counted_declarations else None,
        )
        return counted_declarations[0] if counted_declarations else None

    async def ask(self, entry: AuditEntry, request: Request) -> None:
        """Ask something of the rollout service.

        Raises:
            Problem: 503, Kafka does not answer.
        """
        write = partial(self._write, self._topics.requests, request.record())
        await self._audit_log.changed(entry, write, lambda _: request.number)

    async def change_keys(
        self,
        entry: AuditEntry,
        keys: Sequence[IssuedKey],
        revoked: Sequence[str] = (),
        rotated_key: IssuedKey | None = None,
    ) -> None:
        """Issue write keys, which replace those with the same ids, and revoke others.

        Args:
            entry: for the audit.
            keys: to issue.
            revoked: ids of those to revoke.
            rotated_key: as it was read before the keys replaced it; a revocation at the same time wins.

        Raises:
            Problem: 409, somebody changed the rotated key meanwhile; 503, Kafka does not answer.
        """
        records = [key.record() for key in keys] + [key_revocation(identity) for identity in revoked]
        if rotated_key is None:
            write = partial(self._append_keys, records)
        else:
            write = partial(self._rotate_key, records, rotated_key)
        await self._audit_log.changed(entry, write, lambda _: [key.json() for key in keys])
        if rotated_key is None:
            await (
                self._read_keys_back()
            )  # else the change counts all the same: a new key is only in the answer

    async def change_schemas(self, entry: AuditEntry, plan: Plan) -> RegistryChange:
        """Change the schema registry.

        Raises:
            RegistryRefusal: what changed meanwhile refuses it.
            Problem: 503, Kafka does not answer.
        """

        async def change() -> RegistryChange | RegistryRefusal:
            """A refusal is returned, since it is an outcome for the audit."""
            try:
                return await self.schemas.change(plan)
            except RegistryRefusal as refusal:
                return refusal

        outcome = await self._audit_log.changed(
            entry,
            change,
            lambda change_outcome: (
                change_outcome.version if isinstance(change_outcome, RegistryChange) else None
            ),
        )
        if isinstance(outcome, RegistryRefusal):
            raise outcome
        return outcome

    async def _rotate_key(self, records: Sequence[Record], rotated_key: IssuedKey) -> None:
        """Write to the topic of the write keys, and read it back.

        Raises:
            Problem: 409, somebody changed the rotated key meanwhile; if it was revoked after it was last read, the
                records are undone.
            Retryable: it cannot be read back.
        """
        identity = rotated_key.id
        await self._stream_follower.catch_up()
        if self.keys.by_id.get(identity) != rotated_key:
            raise Problem(409, f"Somebody changed the write key {identity} meanwhile. Nothing was changed.")
        revoked_before = self.keys.revoked_at(identity)
        await self._append_keys(records)
        ids = [(record.key or b"").decode() for record in records]
        if not await self._read_keys_back():
            raise Retryable(
                f"the rotation was written, and not read back: revoke {', '.join(set(ids) - {identity})}, whose text "
                f"nobody has, and issue a new key before {identity} expires"
            )
        if self.keys.revoked_at(identity) != revoked_before:
            await self._append_keys(list(map(key_revocation, ids)))
            await self._read_keys_back()
            raise Problem(409, f"Somebody revoked the write key {identity} meanwhile. No key was issued.")

    async def _append_keys(self, records: Sequence[Record]) -> None:
        await self._stream_producer.send_and_wait(self._key_topic, 0, records)

    async def _read_keys_back(self) -> bool:
        """Read what was written; returns whether Kafka let it in time."""
        try:
            async with asyncio.timeout(_READ_BACK_S):
                await self._stream_follower.start()
        except (TimeoutError, TopicRecreated) as error:
            logger.warning("write-keys-not-read-back", error=repr(error))
            return False
        return True

    async def _write_audit(self, entry: AuditEntry) -> None:
        await self._write(self._topics.audit, entry.record())

    async def _write_uses(self, records: Sequence[Record]) -> None:
        await self._producer.send_and_wait(self._topics.last_used, 0, records)

    async def _write(self, topic: str, record: Record) -> None:
        await self._producer.send_and_wait(topic, 0, [record])

    def _take_status(self, _: bytes | None, value: bytes | None, __: int) -> None:
        status = rollout_status.decode(value)
        self._statuses[status.pipe] = status
