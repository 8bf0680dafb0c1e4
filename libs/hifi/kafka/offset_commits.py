"""Commit the completed offsets of assigned partitions."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError
from aiokafka.structs import OffsetAndMetadata

from aiokafka_cooperative import TopicMissingError
from hifi.kafka.assigned_partition import AssignedPartition, CommitListener
from hifi.runtime import log

logger = log.get(__name__)


async def commit(member: Any, partitions: Iterable[AssignedPartition]) -> None:
    """Commit what was completed since the last commit, with the metadata of each partition, and what listeners decide.

    Args:
        member: the CooperativeConsumer that the partitions are assigned to.
        partitions: assigned to it.

    Raises:
        CommitFailedError, IllegalStateError: a partition is no longer this member's; nothing is committed.
        TopicMissingError: a topic was deleted; the member joins the group again.
        KafkaError: Kafka did not answer, or refused.
    """
    changed: dict[AssignedPartition, OffsetAndMetadata] = {}
    listeners: list[CommitListener] = []
    for partition in partitions:
        if partition.void:
            continue
        offset, listener = partition.offsets.committable, partition.commit_listener
        if offset is None or offset == partition.committed:
            offset = None
        if listener is not None:
            listeners.append(listener)
            decided_offset = listener.before_commit(partition.committed if offset is None else offset)
            offset = decided_offset if offset is None else offset
        if offset is not None:
            changed[partition] = OffsetAndMetadata(offset, partition.metadata_at(offset))
    if changed:
        await _commit(member, changed)
    for listener in listeners:
        listener.after_commit()


async def _commit(member: Any, offsets: Mapping[AssignedPartition, OffsetAndMetadata]) -> None:
    try:
        await member.commit({partition.tp: offset for partition, offset in offsets.items()})
    except TopicMissingError as error:
        # It does not say which topic. Partitions of the others are read again, from what was committed now.
        for partition in offsets:
            partition.make_void(error)
        raise
    for partition, committed in offsets.items():
        partition.committed = committed.offset


async def commit_periodically(
    member: Any, partitions: Callable[[], Collection[AssignedPartition]], interval_s: float
) -> None:
    """Commit until cancelled; a commit that fails is repeated by the next one.

    Args:
        member: the CooperativeConsumer.
        partitions: gives those that are assigned at the moment.
        interval_s: between two commits, seconds.
    """
    while True:
        await asyncio.sleep(interval_s)
        try:
            await commit(member, list(partitions()))
        except (CommitFailedError, IllegalStateError) as error:
            logger.info("commit-refused", error=repr(error))
        except KafkaError as error:
            logger.warning("commit-failed", error=repr(error))
