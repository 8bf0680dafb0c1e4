"""Create, revoke and list the principals of the management API, each change with its record in the audit."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Final

from aiokafka.errors import KafkaError

from hifi.control.principals.audit import Audit, AuditEntry, AuditOutcome
from hifi.control.principals.principal import Principal, Principals, Role, new_token, revocation, token_sha256
from hifi.kafka.producer import Producer
from hifi.kafka.topic_follower import TopicFollower
from hifi.kafka.topics import ControlTopics
from hifi.record.record import Record
from hifi.runtime.errors import Misconfigured, Retryable

_CLIENT: Final = "hifi-principals"
_ANSWER_S: Final = 15


async def principals(bootstrap: str, topics: ControlTopics) -> Mapping[str, Principal]:
    """Name to principal, of all that are not revoked.

    Raises:
        Retryable: Kafka does not answer.
    """
    all_principals = Principals()
    async with _answering(bootstrap):
        follower = TopicFollower(bootstrap, _CLIENT, {topics.principals: all_principals.take})
        try:
            await follower.start()
        finally:
            await follower.stop()
    return all_principals.by_name


async def had_principals(bootstrap: str, topics: ControlTopics) -> bool:
    """Whether a principal was ever created, revoked or not.

    Raises:
        Retryable: Kafka does not answer.
    """
    audit = Audit()
    async with _answering(bootstrap):
        follower = TopicFollower(bootstrap, _CLIENT, {topics.audit: audit.take})
        try:
            await follower.start()
        finally:
            await follower.stop()
    return any(
        entry.subject.startswith("principal/") and entry.outcome is AuditOutcome.DONE
        for entry in audit.entries.values()
    )


async def create_principal(
    bootstrap: str,
    topics: ControlTopics,
    name: str,
    role: Role,
    *,
    author: str,
    at_us: int,
    pipes: tuple[str, ...] = (),
    expires_us: int | None = None,
    token: str | None = None,
) -> str:
    """Create a principal, or replace it and its token; returns its token, which is stored nowhere.

    Args:
        bootstrap: the control plane's Kafka.
        topics: of the control plane.
        name: of the principal.
        role: what it may do.
        author: who creates it.
        at_us: now, microseconds since 1970 UTC.
        pipes: to which the role is limited; empty: the whole stream.
        expires_us: when the token expires, microseconds since 1970 UTC; None: never.
        token: a random one that exists already; None: a new one.

    Raises:
        Retryable: Kafka does not answer.
    """
    token = token or new_token()
    principal = Principal(name, role, tuple(sorted(pipes)), token_sha256(token), expires_us, author, at_us)
    before = (await principals(bootstrap, topics)).get(name)
    entry = AuditEntry(author, "create", f"principal/{name}", at_us, before and before.json())
    await _write(
        bootstrap, topics, principal.record(), entry, entry.ended(AuditOutcome.DONE, principal.json())
    )
    return token


async def revoke_principal(
    bootstrap: str, topics: ControlTopics, name: str, *, author: str, at_us: int
) -> None:
    """Revoke a principal: its token is refused by all instances within seconds.

    Args:
        bootstrap: the control plane's Kafka.
        topics: of the control plane.
        name: of the principal.
        author: who revokes it.
        at_us: now, microseconds since 1970 UTC.

    Raises:
        Misconfigured: there is no such principal.
        Retryable: Kafka does not answer.
    """
    before = (await principals(bootstrap, topics)).get(name)
    if before is None:
        raise Misconfigured(f"there is no principal {name}; `hifi principal list` lists those that exist")
    entry = AuditEntry(author, "revoke", f"principal/{name}", at_us, before.json())
    await _write(bootstrap, topics, revocation(name), entry, entry.ended(AuditOutcome.DONE))


async def _write(
    bootstrap: str, topics: ControlTopics, record: Record, asked: AuditEntry, done: AuditEntry
) -> None:
    async with _answering(bootstrap):
        producer = Producer(bootstrap, _CLIENT)
        await producer.start()
        try:
            for topic, message in (
                (topics.audit, asked.record()),
                (topics.principals, record),
                (topics.audit, done.record()),
            ):
                await producer.send_and_wait(topic, 0, [message])
        finally:
            await producer.stop()


@contextlib.asynccontextmanager
async def _answering(bootstrap: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(_ANSWER_S):
            yield
    except (TimeoutError, KafkaError, OSError) as error:
        raise Retryable(f"the control plane's Kafka at {bootstrap} does not answer: {error!r}") from error
