"""Commit the completed offsets of assigned partitions."""

import asyncio
from collections.abc import Callable, Collection, Iterable
from typing import Any

from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError
from aiokafka.structs import OffsetAndMetadata

from hifi.kafka.assigned_partition import AssignedPartition
from hifi.runtime import log

logger = log.get(__name__)


async def commit(member: Any, partitions: Iterable[AssignedPartition]) -> None:
    """Commit what was completed since the last commit, with the metadata of each partition.

    Args:
        member: the CooperativeConsumer that the partitions are assigned to.
        partitions: assigned to it.

    Raises:
        CommitFailedError, IllegalStateError: a partition is no longer this member's; nothing is committed.
        KafkaError: Kafka did not answer, or refused.
    """
    changed = {
        partition: OffsetAndMetadata(
            partition.offsets.committable, partition.metadata_at(partition.offsets.committable)
        )
        for partition in partitions
        if partition.offsets.committable is not None and partition.offsets.committable != partition.committed
    }
    if not changed:
        return
    await member.commit({partition.tp: offset for partition, offset in changed.items()})
    for partition, offset in changed.items():
        partition.committed = offset.offset


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
