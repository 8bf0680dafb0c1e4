"""Create, revoke and list principals, each change with its record in the audit; and read and write the audit."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

from aiokafka.errors import KafkaError

from hifi.control.action_right import ActionRefused
from hifi.control.principals.audit import Audit, AuditEntry, AuditOutcome
from hifi.control.principals.principal import (
    PERSON,
    Principal,
    Principals,
    RevokedPerson,
    Role,
    new_token,
    revocation,
    token_sha256,
)
from hifi.kafka.last_uses import LastUses
from hifi.kafka.producer import Producer
from hifi.kafka.topic_follower import Take
from hifi.kafka.topics import PrincipalTopics
from hifi.kafka.visit import answering, read_topics, write_records
from hifi.record.record import Record
from hifi.runtime.errors import Misconfigured, Retryable

_CLIENT: Final = "hifi-principals"


async def read_principals(bootstrap: str, topics: PrincipalTopics) -> Principals:
    """The principals that exist, and the people who were revoked.

    Raises:
        Retryable: Kafka does not answer.
    """
    all_principals = Principals()
    await _read(bootstrap, topics.principals, all_principals.take)
    return all_principals


async def read_last_uses(bootstrap: str, topics: PrincipalTopics) -> LastUses:
    """When the tokens of principals were used last.

    Raises:
        Retryable: Kafka does not answer.
    """
    uses = LastUses()
    await _read(bootstrap, topics.last_used, uses.take)
    return uses


async def had_principal(bootstrap: str, topics: PrincipalTopics, name: str) -> bool:
    """Whether a principal of this name was ever created, revoked or not.

    Raises:
        Retryable: Kafka does not answer.
    """
    return any(
        entry.subject == f"principal/{name}" and entry.outcome is AuditOutcome.DONE
        for entry in await audit_entries(bootstrap, topics)
    )


async def audit_entries(bootstrap: str, topics: PrincipalTopics) -> list[AuditEntry]:
    """The audit, oldest entry first.

    Raises:
        Retryable: Kafka does not answer.
    """
    audit = Audit()
    await _read(bootstrap, topics.audit, audit.take)
    return list(audit.entries.values())


async def create_principal(
    bootstrap: str,
    topics: PrincipalTopics,
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
        Misconfigured: the name is that of a person whom a provider signs in.
        Retryable: Kafka does not answer.
    """
    if name.startswith(PERSON):
        raise Misconfigured(
            f"names that begin with {PERSON} are those of people whom the OpenID Connect provider signs in; their "
            "groups give them roles"
        )
    token = token or new_token()
    principal = Principal(name, role, tuple(sorted(pipes)), token_sha256(token), expires_us, author, at_us)
    replaced_principal = (await read_principals(bootstrap, topics)).by_name.get(name)
    entry = AuditEntry(
        author, "create", f"principal/{name}", at_us, replaced_principal and replaced_principal.json()
    )
    await _write(
        bootstrap, topics, principal.record(), entry, entry.ended(AuditOutcome.DONE, principal.json())
    )
    return token


async def revoke_principal(
    bootstrap: str, topics: PrincipalTopics, name: str, *, author: str, at_us: int
) -> None:
    """Revoke a principal, or a person whom a provider signs in: all instances refuse it within seconds.

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
    if name.startswith(PERSON):
        person = RevokedPerson(name, author, at_us)
        entry = AuditEntry(author, "revoke", f"principal/{name}", at_us)
        await _write(bootstrap, topics, person.record(), entry, entry.ended(AuditOutcome.DONE, person.json()))
        return
    principal = (await read_principals(bootstrap, topics)).by_name.get(name)
    if principal is None:
        raise Misconfigured(f"there is no principal {name}; `hifi principal list` lists those that exist")
    entry = AuditEntry(author, "revoke", f"principal/{name}", at_us, principal.json())
    await _write(bootstrap, topics, revocation(name), entry, entry.ended(AuditOutcome.DONE))


async def restore_person(
    bootstrap: str, topics: PrincipalTopics, name: str, *, author: str, at_us: int
) -> None:
    """Let a person sign in again who was revoked.

    Args:
        bootstrap: the control plane's Kafka.
        topics: of the control plane.
        name: of the person.
        author: who restores the person.
        at_us: now, microseconds since 1970 UTC.

    Raises:
        Misconfigured: nobody of this name was revoked, or it is a principal, whose token does not come back.
        Retryable: Kafka does not answer.
    """
    revoked_person = (await read_principals(bootstrap, topics)).revoked.get(name)
    if revoked_person is None:
        raise Misconfigured(
            f"no person {name} was revoked, see `hifi principal list`; for a principal make a new token with "
            "`hifi principal create`"
        )
    entry = AuditEntry(author, "restore", f"principal/{name}", at_us, revoked_person.json())
    await _write(bootstrap, topics, revocation(name), entry, entry.ended(AuditOutcome.DONE, {}))


@contextlib.asynccontextmanager
async def audited(
    bootstrap: str, topics: PrincipalTopics, entries: Sequence[AuditEntry]
) -> AsyncIterator[dict[str, Any]]:
    """Makes the changes of a command in the block, between entries that they were asked for and with the outcome.

    The block gets a mapping, in which it puts what the audit keeps of the outcome, by subject. If it fails, a subject
    is refused if the error is a refusal and the mapping shows no change of it; else its outcome is unknown.

    Raises:
        Retryable: the audit cannot be written; the block did not run.
    """
    outcomes_by_subject: dict[str, Any] = {}
    async with _writing(bootstrap, topics.audit) as write:
        await write(entries)
        try:
            yield outcomes_by_subject
        except Exception as error:
            refuses, reason = _refuses(error), str(error) or repr(error)
            ended_entries = []
            for entry in entries:
                after = outcomes_by_subject.get(entry.subject)
                is_unchanged = refuses and after in (None, entry.before)
                outcome = AuditOutcome.REFUSED if is_unchanged else AuditOutcome.UNKNOWN
                ended_entries.append(entry.ended(outcome, after, reason))
            await write(ended_entries)
            raise
        await write(
            [entry.ended(AuditOutcome.DONE, outcomes_by_subject.get(entry.subject)) for entry in entries]
        )


def _refuses(error: Exception) -> bool:
    """Whether an error was raised before anything was written, and not because Kafka did not answer to a write."""
    return isinstance(error, Misconfigured | ActionRefused) and not isinstance(
        error.__context__, KafkaError | Retryable | OSError | TimeoutError
    )


@contextlib.asynccontextmanager
async def _writing(
    bootstrap: str, topic: str
) -> AsyncIterator[Callable[[Sequence[AuditEntry]], Awaitable[None]]]:
    producer = Producer(bootstrap, _CLIENT)
    async with _answering(bootstrap):
        await producer.start()

    async def write(entries: Sequence[AuditEntry]) -> None:
        """Write entries."""
        async with _answering(bootstrap, topic):
            await producer.send_and_wait(topic, 0, [entry.record() for entry in entries])

    try:
        yield write
    finally:
        await producer.stop()


async def _write(
    bootstrap: str,
    topics: PrincipalTopics,
    record: Record,
    request_entry: AuditEntry,
    outcome_entry: AuditEntry,
) -> None:
    async with _answering(bootstrap):
        await write_records(
            bootstrap,
            _CLIENT,
            (topics.audit, [request_entry.record()]),
            (topics.principals, [record]),
            (topics.audit, [outcome_entry.record()]),
        )


async def _read(bootstrap: str, topic: str, take: Take) -> None:
    """Pass all records of a topic on to `take`."""
    async with _answering(bootstrap, topic):
        await read_topics(bootstrap, _CLIENT, {topic: take})


def _answering(bootstrap: str, topic: str | None = None) -> AbstractAsyncContextManager[None]:
    topic_hint = f", or has no topic {topic}, which the setup job creates" if topic else ""
    return answering(f"the control plane's Kafka at {bootstrap} does not answer{topic_hint}")
