"""What each service may do in Kafka: its topics and groups, and the access control entries (ACLs) that allow it.

The table `access` is the only source of `hifi acl show`, `hifi acl apply` and the users of `hifi up --secure`. Kafka
allows DESCRIBE to whoever may READ or WRITE, and idempotent writes to whoever may write. hifi uses no transactions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from hifi.topics import Topics

Resource: TypeAlias = Literal["topic", "group", "cluster"]
Operation: TypeAlias = Literal["Read", "Write", "Create", "Describe", "DescribeConfigs", "Delete"]

PUBLISHER: Final = "publisher"
"""Creates topics and publishes pipes: `hifi apply` and provisioning. No other principal may write the topic `pipes`."""
OPERATOR: Final = "operator"
"""Reads everything and replays dead letters: the other commands of `hifi`."""
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
    """What one principal needs. A name that ends with `*` stands for every name that begins with the rest."""

    reads: Sequence[str] = ()
    writes: Sequence[str] = ()
    describes: Sequence[str] = ()
    """Topics whose end offsets it reads, but not their records."""
    creates: Sequence[str] = ()
    """Topics that it may create, and whose configuration it may read."""
    groups: Sequence[str] = ()
    """Groups that it joins or whose offsets it commits."""
    describes_groups: Sequence[str] = ()
    """Groups whose offsets it reads."""

    def acls(self) -> list[Acl]:
        """The entries that allow exactly this, sorted."""
        found = [
            *(_acl("topic", name, "Read") for name in self.reads),
            *(_acl("topic", name, "Write") for name in self.writes),
            *(_acl("topic", name, "Describe") for name in self.describes),
            *(_acl("topic", name, "Create") for name in self.creates),
            *(_acl("topic", name, "Describe") for name in self.creates),
            *(_acl("topic", name, "DescribeConfigs") for name in self.creates),
            *(_acl("group", name, "Read") for name in self.groups),
            *(_acl("group", name, "Describe") for name in self.describes_groups),
        ]
        return sorted(set(found))


def access(topics: Topics) -> Mapping[str, Access]:
    """Service, `publisher` or `operator` to what it needs on a stream."""
    retries = topics.retry_in_prefix + ANY
    everything = f"{topics.stream}.{ANY}"
    replayed = (topics.raw, topics.normalized, topics.retry_out, topics.replays)
    return {
        "ingest": Access(
            # It reads what the other processes of ingest report, to share quotas with them.
            reads=[topics.pipes, topics.accepted],
            writes=[topics.raw, topics.accepted],
            # It refuses events while the stages behind it are late.
            describes=[topics.normalized, topics.enriched, retries],
            describes_groups=[topics.group(service) for service in ("normalize", "enrich", "egest")],
        ),
        "normalize": Access(
            reads=[topics.raw, topics.pipes, topics.ids],
            writes=[topics.normalized, topics.dead_letter, topics.receipts, topics.ids],
            groups=[topics.group("normalize")],
        ),
        "enrich": Access(
            reads=[topics.normalized, topics.pipes, topics.enrich_leader, topics.enrich_warm_up],
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
                retries,
            ],
            writes=[topics.receipts, topics.dead_letter, retries],
            groups=[topics.group("egest")],
        ),
        "retrier": Access(
            reads=[retries], writes=[topics.retry_out, topics.dead_letter], groups=[topics.group("retrier")]
        ),
        "observe": Access(
            reads=[everything],
            writes=[topics.minutes, topics.alarms, *replayed],
            groups=[topics.group("observe")],
            describes_groups=[everything],
        ),
        PUBLISHER: Access(reads=[topics.pipes], writes=[topics.pipes], creates=[everything]),
        OPERATOR: Access(reads=[everything], writes=replayed, describes_groups=[everything]),
    }


def user(topics: Topics, role: str) -> str:
    """The name of the Kafka user of a service, the publisher or the operator, unless others are chosen."""
    return f"{topics.stream}.{role}"


def _acl(resource: Resource, name: str, operation: Operation) -> Acl:
    return Acl(resource, name.removesuffix(ANY), name.endswith(ANY), operation)
