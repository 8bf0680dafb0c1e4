"""The next owner of a partition learns from the commit's metadata where to continue."""

from hifi_egest.dedup.commit_metadata import CommitMetadata
from hifi_egest.dedup.deduplicator import Deduplicator
from hifi_egest.dedup.outcome_index import OutcomeIndex


def test_the_next_owner_reads_no_more_receipts_than_it_must() -> None:
    deduplicator = Deduplicator(CommitMetadata(), OutcomeIndex())
    deduplicator.begin_batch(0, {"receipts": 100})
    deduplicator.begin_batch(10, {"receipts": 200})
    assert CommitMetadata.parse(deduplicator.metadata_at(9)).floors == {"receipts": 100}  # type: ignore[union-attr]
    assert CommitMetadata.parse(deduplicator.metadata_at(10)).floors == {"receipts": 200}  # type: ignore[union-attr]


def test_metadata_of_an_operator_is_none_of_ours() -> None:
    assert CommitMetadata.parse("") is None
    assert CommitMetadata.parse("moved by hand") is None
    assert CommitMetadata.parse("[]") is None
    assert CommitMetadata.parse('{"tops": 5}') is None
