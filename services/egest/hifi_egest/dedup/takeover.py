"""Take over a partition: restore the deduplicator, and learn what the last owner completed beyond its commit."""

from collections.abc import Mapping

from aiokafka import ConsumerRecord

from hifi.kafka.consumer import AssignedPartition
from hifi.runtime import log
from hifi_egest.dedup.commit_metadata import CommitMetadata
from hifi_egest.dedup.deduplicator import Deduplicator
from hifi_egest.dedup.outcome_reader import OutcomeReader, RecordedOutcomes

logger = log.get(__name__)


async def take_over(
    reader: OutcomeReader,
    source: str,
    assigned: AssignedPartition,
    first_record: ConsumerRecord,
    log_identity: str,
) -> tuple[Deduplicator, RecordedOutcomes]:
    """Continue where the last owner of a partition stopped.

    Args:
        reader: of the outcome topics, started.
        source: `enriched` or `retry-out`.
        assigned: the partition; its commits carry the metadata of the deduplicator from now on.
        first_record: the first record read.
        log_identity: identity of the stream's log (`StreamLog`); empty: not known.

    Returns:
        The deduplicator, and the outcomes that are already written for records that are read again.

    Raises:
        Fenced: the partition was revoked meanwhile.
    """
    metadata = CommitMetadata.parse(assigned.metadata)
    floors: Mapping[str, int] | None = metadata.floors if metadata is not None else {}
    if metadata is None and assigned.committed is not None:
        floors = None  # an operator moved the offset: what is read again is to be delivered again
    committed = assigned.committed if assigned.committed is not None else first_record.offset
    outcomes = await reader.read(source, assigned.partition, committed, first_record.timestamp, floors)
    if not assigned.active:
        assigned.abandon()
        assigned.ensure_active()
    metadata = metadata or CommitMetadata()
    if metadata.continue_with(log_identity):
        logger.error(
            "raw-offsets-reset", topic=assigned.topic, partition=assigned.partition, offset=committed
        )
    deduplicator = Deduplicator(metadata, outcomes.index)
    for key in outcomes.keys:
        deduplicator.remember(key)
    assigned.metadata_at = deduplicator.metadata_at
    return deduplicator, outcomes
