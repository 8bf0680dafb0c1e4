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


def test_the_highest_offset_belongs_to_one_log() -> None:
    metadata = CommitMetadata({"raw": 9, "1s@0": 5}, 1, {}, "first")
    assert CommitMetadata.parse(metadata.serialize()) == metadata
    assert not metadata.continue_with("first")
    assert metadata.continue_with("second")
    assert (metadata.highest_offsets, metadata.log_identity) == ({"1s@0": 5}, "second")
    assert not metadata.continue_with("third"), "there was none to forget"
    earlier_version = CommitMetadata.parse('{"tops":{"raw":9},"newest":1,"floors":{}}')
    assert earlier_version == CommitMetadata({"raw": 9}, 1, {})
    assert not earlier_version.continue_with("second"), "its log is not known"
    assert earlier_version.highest_offsets == {"raw": 9}


def test_the_log_of_offsets_that_began_anew_is_not_known() -> None:
    """Else the next owner would forget the highest offset of the new log."""
    deduplicator = Deduplicator(CommitMetadata({"raw": 9}, 1, {}, "first"), OutcomeIndex())
    deduplicator.check(0, b"a", "raw", 0, 2)
    restored = CommitMetadata.parse(deduplicator.metadata_at(1))
    assert restored is not None
    assert (restored.highest_offsets, restored.log_identity) == ({"raw": 0}, "")


def test_metadata_of_an_operator_is_none_of_ours() -> None:
    assert CommitMetadata.parse("") is None
    assert CommitMetadata.parse("moved by hand") is None
    assert CommitMetadata.parse("[]") is None
    assert CommitMetadata.parse('{"tops": 5}') is None
