"""A consumer that rebalances cooperatively."""

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.consumer.fetcher import Fetcher
from aiokafka.structs import OffsetAndMetadata

from aiokafka_cooperative.compatibility import check_compatibility
from aiokafka_cooperative.coordinator import CooperativeCoordinator, GroupMembership
from aiokafka_cooperative.injection import start_with_classes
from aiokafka_cooperative.subscription import NO_GENERATION

Offsets: TypeAlias = Mapping[TopicPartition, int | tuple[int, str] | OffsetAndMetadata]


class CooperativeConsumer(AIOKafkaConsumer):  # type: ignore[misc]
    """An AIOKafkaConsumer that rebalances cooperatively (KIP-429).

    It shares groups with members of its kind, with Java's CooperativeStickyAssignor and with librdkafka's
    cooperative-sticky. Partitions that stay with this member are not interrupted: position, pause, fetched records and
    running fetches are kept.

    The rebalance listener's methods, which may be coroutines, are called one at a time and awaited:

    - `on_partitions_assigned(added)`: only the partitions that are new. Also called, with an empty set, when joining
      the group brought none: from then on the assignment is known.
    - `on_partitions_revoked(revoked)`: only the partitions that are taken away; all of them when the consumer stops.
      They are paused, commits still succeed and heartbeats continue. The group waits for this method, so it must
      return well within `rebalance_timeout_ms`.
    - `on_partitions_lost(lost)`: Kafka has removed this member from the group, other members may already read these
      partitions. They are paused and commits fail. A listener without this method gets `on_partitions_revoked`.
    """

    def __init__(self, *topics: str, fetcher_class: Callable[..., Fetcher] = Fetcher, **options: Any) -> None:
        """Take the options of AIOKafkaConsumer, except that `partition_assignment_strategy` is ignored.

        Args:
            topics: as AIOKafkaConsumer's; use `subscribe` or these, not `assign`.
            fetcher_class: aiokafka's Fetcher, a subclass of it, or a function with its parameters that makes one.
            options: as AIOKafkaConsumer's. `group_id` is required, `enable_auto_commit` is False by default.

        Raises:
            ValueError: no group, or auto commit.
            IncompatibleAiokafkaError: this package does not support the installed aiokafka release.
        """
        if not options.get("group_id"):
            raise ValueError(
                "a cooperative consumer needs a group_id; use AIOKafkaConsumer to read without a group"
            )
        if options.setdefault("enable_auto_commit", False):
            raise ValueError("enable_auto_commit would commit records that are not processed yet")
        check_compatibility()
        options.pop("partition_assignment_strategy", None)
        super().__init__(*topics, **options)
        self._fetcher_class = fetcher_class

    async def start(self) -> None:
        """Connect, join the group, and wait until the assignment, which may be empty, is known."""
        replacements: dict[str, Callable[..., Any]] = {
            "GroupCoordinator": self._make_coordinator,
            "Fetcher": self._fetcher_class,
        }
        await start_with_classes(replacements)(self)

    def _make_coordinator(self, *arguments: Any, **options: Any) -> CooperativeCoordinator:
        return CooperativeCoordinator(*arguments, fetcher=self._fetcher, **options)

    async def commit(self, offsets: Offsets | None = None) -> None:
        """Commit the next offset to read of each partition: an int, (int, metadata) or OffsetAndMetadata.

        During a join the call waits; it then succeeds only if this member has held all the partitions without
        interruption.

        Raises:
            CommitFailedError: a partition was revoked or lost meanwhile; nothing is committed.
            IllegalStateError: a partition is not assigned.
            ValueError: no offsets. Records that were handed out are not necessarily processed, above all during a
                rebalance (aiokafka issues 929 and 933).
            TopicMissingError: a topic does not exist; the offsets of the others are committed.
            KafkaError: Kafka refused the commit.
        """
        if offsets is None:
            raise ValueError(
                "name which offsets to commit: records that were handed out may not be processed yet"
            )
        await super().commit(offsets)

    @property
    def membership(self) -> GroupMembership:
        """This member's id, and the generation in which its assignment was last confirmed."""
        return (
            GroupMembership(NO_GENERATION, "") if self._coordinator is None else self._coordinator.membership
        )

    @property
    def last_heartbeat_monotonic_s(self) -> float:
        """When the last successful heartbeat was sent, on `time.monotonic()`; -inf outside of a group.

        Kafka keeps this member and its partitions for at least `session_timeout_ms` from then on. The value does not
        advance while a rebalance has waited too long for this member, even if heartbeats succeed.
        """
        return -math.inf if self._coordinator is None else self._coordinator.lease.last_heartbeat_s
