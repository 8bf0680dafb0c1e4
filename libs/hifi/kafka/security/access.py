"""The access of each service to Kafka: its topics and groups, and the access control entries (ACLs) that allow it.

`user_access` is the only source of `hifi acl show`, `hifi acl apply` and the users of `hifi up --secure`. Kafka allows
DESCRIBE to users that may READ or WRITE, and idempotent writes to those that may write. Transactions are used by the
actors of a control plane, by manage and by collect: they give one instance at a time the right to take an action, to
change the schema registry, or to read a source.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

from hifi.kafka.topics import ControlTopics, PrincipalTopics, Topics, principal_topics

Resource: TypeAlias = Literal["topic", "group", "cluster", "transactional-id"]
Operation: TypeAlias = Literal["Read", "Write", "Create", "Describe", "DescribeConfigs", "Delete"]

PUBLISHER: Final = "publisher"
"""Creates topics and publishes pipes: `hifi apply` and the setup job. No other principal may write the topic `pipes`.
It also creates and revokes principals."""
OPERATOR: Final = "operator"
"""Reads everything and replays dead letters: the other commands of `hifi`."""
COLOURS: Final = "colours"
"""Divides the requests between two colours: `hifi colour`, and the service colours in containers."""
CONNECT: Final = "connect"
"""A worker of Kafka Connect beside the stream."""
CHANGES: Final = "changes"
"""Reads what that worker writes; pipes name this user."""
OPTIONAL: Final = (CONNECT, CHANGES, COLOURS)
"""Users that only a stream with Kafka Connect or with two colours needs."""
CONNECT_STORES: Final = ("configs", "offsets", "status")
"""Ends of the names of the topics in which that worker keeps its connectors; pipes may not name them."""
ANY: Final = "*"


@dataclass(frozen=True, slots=True, order=True)
class Acl:
    """An access control entry that allows an operation, from any host.

    Attributes:
        resource: kind of the resource.
        name: of the resource, or the beginning of its name.
        prefixed: whether `name` is the beginning of names.
        operation: what is allowed.
    """

    resource: Resource
    name: str
    prefixed: bool
    operation: Operation


@dataclass(frozen=True, slots=True)
class Access:
    """The access of one principal. A name that ends with `*` stands for every name that begins with the rest."""

    reads: Sequence[str] = ()
    writes: Sequence[str] = ()
    describes: Sequence[str] = ()
    """Topics whose end offsets it reads, but not their records."""
    reads_settings: Sequence[str] = ()
    """Topics whose configuration it reads."""
    creates: Sequence[str] = ()
    """Topics that it may create, and whose configuration it may read."""
    groups: Sequence[str] = ()
    """Groups that it joins or whose offsets it commits."""
    describes_groups: Sequence[str] = ()
    """Groups whose offsets it reads."""
    transactional_ids: Sequence[str] = ()
    """Transactional ids of its producers."""

    def acls(self) -> list[Acl]:
        """The entries that allow exactly this, sorted."""
        acls = [
            *(_acl("topic", name, "Read") for name in self.reads),
            *(_acl("topic", name, "Write") for name in self.writes),
            *(_acl("topic", name, "Describe") for name in self.describes),
            *(_acl("topic", name, "DescribeConfigs") for name in self.reads_settings),
            *(_acl("topic", name, "Create") for name in self.creates),
            *(_acl("topic", name, "Describe") for name in self.creates),
            *(_acl("topic", name, "DescribeConfigs") for name in self.creates),
            *(_acl("group", name, "Read") for name in self.groups),
            *(_acl("group", name, "Describe") for name in self.describes_groups),
            *(_acl("transactional-id", name, "Write") for name in self.transactional_ids),
            *(_acl("transactional-id", name, "Describe") for name in self.transactional_ids),
        ]
        return sorted(set(acls))


def user_access(topics: Topics, control: ControlTopics | None = None) -> Mapping[str, Access]:
    """Each user of a Kafka to what it needs there: those of `access`, of Kafka Connect and of `hifi colour`."""
    return {**access(topics, control), **connect_access(topics), **colours_access(topics, control)}


def access(topics: Topics, control: ControlTopics | None = None) -> Mapping[str, Access]:
    """Service, `publisher` or `operator` to what it needs on a stream, and on its control plane if there is one."""
    accesses = _stream_access(topics)
    accesses |= _principals_access(control or principal_topics(topics.stream), accesses)
    if control is not None:
        accesses |= _control_access(topics, control, accesses)
    # Each service tells when its certificates expire.
    return accesses | {
        name: replace(service_access, writes=[*service_access.writes, topics.certificates])
        for name, service_access in accesses.items()
        if name not in (PUBLISHER, OPERATOR)
    }


def connect_access(topics: Topics) -> Mapping[str, Access]:
    """The access of a worker of Kafka Connect beside the stream, and of the user as whom collect reads its topics.

    Their topics begin with `<stream>-connect.`, and those of the stream are not theirs. collect keeps the keys of rows
    in topics beside them (`hifi_debezium.source.kept_keys`).
    """
    group = connect_group(topics)
    changes = f"{group}.{ANY}"
    written_topics = [changes, f"__debezium-heartbeat.{group}.{ANY}"]
    return {
        CONNECT: Access(
            reads=written_topics,
            writes=written_topics,
            creates=written_topics,
            groups=[group],
            transactional_ids=[f"{group}-{ANY}", f"connect-cluster-{group}"],
        ),
        CHANGES: Access(
            reads=[changes], writes=[changes], creates=[changes], groups=[topics.group("collect") + ANY]
        ),
    }


def colours_access(topics: Topics, control: ControlTopics | None) -> Mapping[str, Access]:
    """The access of `hifi colour` and of the service colours: on the Kafka of a colour, and on the control plane's.

    Args:
        topics: of the stream.
        control: topics of the control plane, or those of one colour on its Kafka; None: on the Kafka of a colour.
    """
    stream_pattern = f"{topics.stream}.{ANY}"
    if control is None:
        # Backlogs are read from the newest records and the positions of groups, rollouts from the pipes. A colour that
        # wakes gets the write keys of the other one.
        return {
            COLOURS: Access(
                reads=[topics.pipes, topics.normalized, topics.enriched, topics.write_keys],
                writes=[topics.write_keys],
                describes=[stream_pattern],
                describes_groups=[stream_pattern],
            )
        }
    return {
        COLOURS: Access(
            reads=[control.colours, control.actions, control.health],
            writes=[control.colours, control.actions, control.audit, control.certificates],
            transactional_ids=[control.actor],
        )
    }


def connect_group(topics: Topics) -> str:
    """Group of the workers of Kafka Connect beside the stream."""
    return f"{topics.stream}-connect"


def _principals_access(topics: PrincipalTopics, accesses: Mapping[str, Access]) -> Mapping[str, Access]:
    observe, publisher, operator = accesses["observe"], accesses[PUBLISHER], accesses[OPERATOR]
    changed_topics = [topics.principals, topics.audit]
    created_topics = [*changed_topics, topics.last_used]
    return {
        "observe": replace(
            observe,
            reads=[*observe.reads, topics.principals],
            writes=[*observe.writes, topics.audit, topics.last_used],
        ),
        PUBLISHER: replace(
            publisher,
            reads=[*publisher.reads, *created_topics],
            writes=[*publisher.writes, *changed_topics],
            creates=[*publisher.creates, *created_topics],
        ),
        OPERATOR: replace(
            operator, reads=[*operator.reads, topics.audit], writes=[*operator.writes, topics.audit]
        ),
    }


def _control_access(
    topics: Topics, control: ControlTopics, accesses: Mapping[str, Access]
) -> Mapping[str, Access]:
    stream_pattern = f"{topics.stream}.{ANY}"
    observe, publisher = accesses["observe"], accesses[PUBLISHER]
    return {
        "observe": replace(
            observe,
            reads=[*observe.reads, control.actions, control.colours, control.certificates],
            writes=[*observe.writes, control.health],
        ),
        "collect": replace(accesses["collect"], reads=[*accesses["collect"].reads, control.colours]),
        "state": replace(
            accesses["state"],
            reads=[*accesses["state"].reads, control.colours, control.step_times],
            writes=[*accesses["state"].writes, control.step_times],
        ),
        "scale": Access(
            # Backlogs are read from the newest records of the one and the positions of records in the other.
            reads=[control.health, control.actions, topics.normalized, topics.enriched],
            writes=[control.actions],
            describes=[stream_pattern],
            describes_groups=[stream_pattern],
            transactional_ids=[control.actor],
        ),
        "deploy": Access(
            # The lag of an instance is read from the positions and the members of its consumer group.
            reads=[
                control.health,
                control.actions,
                control.requests,
                control.releases,
                control.deployments,
            ],
            writes=[control.actions, control.deployments],
            describes=[stream_pattern],
            describes_groups=[stream_pattern],
            transactional_ids=[control.actor, control.deployer],
        ),
        "rollout": Access(
            reads=[
                topics.pipes,
                control.health,
                control.actions,
                control.declared,
                control.requests,
                control.rollouts,
            ],
            writes=[topics.pipes, control.actions, control.rollouts],
            transactional_ids=[control.actor, control.rollout_writer + ANY],
        ),
        "manage": Access(
            reads=[
                topics.pipes,
                topics.destinations,
                topics.write_keys,
                topics.key_uses,
                control.declared,
                control.rollouts,
                control.principals,
                control.audit,
                control.last_used,
                control.schemas,
            ],
            writes=[
                topics.write_keys,
                control.declared,
                control.requests,
                control.audit,
                control.last_used,
                control.schemas,
            ],
            transactional_ids=[control.registrar],
        ),
        PUBLISHER: replace(
            publisher,
            # It reads back which of its declarations count.
            reads=[
                *publisher.reads,
                control.declared,
                control.rollouts,
                control.releases,
                control.deployments,
            ],
            writes=[*publisher.writes, control.declared, control.requests, control.releases],
            creates=[*publisher.creates, f"{control.prefix}.{ANY}"],
        ),
    }


def _stream_access(topics: Topics) -> dict[str, Access]:
    retries = topics.retry_in_prefix + ANY
    stream_pattern = f"{topics.stream}.{ANY}"
    replayed = (topics.raw, topics.normalized, topics.retry_out, topics.replays)
    return {
        "ingest": Access(
            # It reads what the other processes of ingest report, to share quotas with them.
            reads=[topics.pipes, topics.accepted, topics.write_keys],
            writes=[topics.raw, topics.accepted, topics.key_uses, topics.key_usage],
            # It refuses events while the stages behind it are late.
            describes=[topics.normalized, topics.enriched, retries],
            describes_groups=[topics.group(service) for service in ("normalize", "enrich", "egest")],
        ),
        "collect": Access(
            reads=[topics.pipes, topics.collect_leader, topics.source_progress],
            writes=[topics.raw, topics.accepted, topics.source_progress],
            # Backfills are slower while the stages behind it are late.
            describes=[topics.normalized, topics.enriched, retries],
            describes_groups=[topics.group(service) for service in ("normalize", "enrich", "egest")],
            # For sources on the stream's own cluster, whose topics are for their owner to allow, and for elections.
            groups=[topics.group("collect") + ANY],
            transactional_ids=[topics.source_writer(ANY)],
        ),
        "normalize": Access(
            reads=[topics.raw, topics.pipes, topics.ids, topics.source_positions],
            writes=[
                topics.normalized,
                topics.dead_letter,
                topics.receipts,
                topics.ids,
                topics.source_positions,
            ],
            groups=[topics.group("normalize")],
        ),
        "enrich": Access(
            reads=[
                topics.normalized,
                topics.pipes,
                topics.enrich_leader,
                topics.enrich_warm_up,
                # After an interrupted batch it skips what was written.
                topics.enriched,
                topics.dead_letter,
            ],
            writes=[topics.enriched, topics.dead_letter, topics.enrich_warm_up],
            groups=[
                topics.group("enrich"),
                topics.group("enrich-leader"),
                topics.enrich_warm_up,
                topics.spark_group_prefix + ANY,
            ],
        ),
        "egest": Access(
            reads=[
                topics.enriched,
                topics.retry_out,
                topics.pipes,
                topics.receipts,
                topics.dead_letter,
                topics.parked,
                topics.destinations,
                topics.watermarks,
                retries,
            ],
            writes=[topics.receipts, topics.dead_letter, topics.parked, topics.destinations, retries],
            describes=[topics.raw],  # for its id, with which destinations keep positions
            groups=[topics.group("egest")],
        ),
        "lake": Access(
            # After an interruption it writes the receipts that are missing.
            reads=[topics.enriched, topics.pipes, topics.lake_leader, topics.receipts, topics.watermarks],
            writes=[topics.receipts, topics.dead_letter],
            describes=[topics.raw],
            groups=[topics.group("lake"), topics.group("lake-leader"), topics.spark_group_prefix + ANY],
        ),
        "state": Access(
            reads=[topics.enriched, topics.pipes, topics.state_leader, topics.folds],
            writes=[topics.raw, topics.accepted, topics.dead_letter, topics.folds],
            groups=[
                topics.group("state.") + ANY,
                topics.group("state-step.") + ANY,
                topics.spark_group_prefix + ANY,
            ],
            transactional_ids=[topics.step_writer(ANY)],
        ),
        "retrier": Access(
            reads=[retries, topics.parked, topics.destinations],
            writes=[topics.retry_out, topics.dead_letter, topics.destinations],
            # What is parked becomes dead letters before Kafka deletes it.
            reads_settings=[topics.parked],
            groups=[topics.group("retrier")],
            # What comes back from `parked` waits until egest has delivered what came back before.
            describes_groups=[topics.group("egest")],
        ),
        "view": Access(
            reads=[topics.raw, topics.normalized, topics.enriched, topics.pipes],
            # How far the services before a view are.
            describes_groups=[topics.group("normalize"), topics.group("enrich")],
        ),
        "observe": Access(
            reads=[stream_pattern],
            writes=[topics.minutes, topics.watermarks, topics.alarms, *replayed],
            groups=[topics.group("observe")],
            describes_groups=[stream_pattern],
        ),
        PUBLISHER: Access(
            reads=[topics.pipes, topics.write_keys, topics.key_uses],
            writes=[topics.pipes, topics.write_keys],
            creates=[stream_pattern],
        ),
        OPERATOR: Access(
            reads=[stream_pattern], writes=[*replayed, topics.destinations], describes_groups=[stream_pattern]
        ),
    }


def user(topics: Topics, role: str) -> str:
    """The name of the Kafka user of a service, the publisher or the operator, unless others are chosen."""
    return f"{topics.stream}.{role}"


def _acl(resource: Resource, name: str, operation: Operation) -> Acl:
    return Acl(resource, name.removesuffix(ANY), name.endswith(ANY), operation)
