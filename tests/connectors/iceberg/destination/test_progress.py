"""The progress of a table, which is committed with its rows."""

from hifi_iceberg.destination.progress import PartitionProgress, TableProgress, progress_at


def test_progress_survives_its_dump() -> None:
    progress = TableProgress({0: PartitionProgress(5, 3), 12: PartitionProgress(1, -1)})
    assert TableProgress.load(progress.dump()) == progress


def test_a_batch_moves_offsets_and_never_lowers_a_watermark() -> None:
    progress_before = TableProgress({0: PartitionProgress(5, 3), 1: PartitionProgress(7, 4)})
    progress_after = progress_before.advanced({0: 9, 1: 6}, {0: 8, 1: 2})
    assert progress_after.partitions == {0: PartitionProgress(9, 8), 1: PartitionProgress(7, 4)}


def test_the_progress_at_a_commit_of_the_group_is_the_newest_one_that_is_not_beyond_it() -> None:
    history = [TableProgress({0: PartitionProgress(offset, offset - 1)}).dump() for offset in (30, 20, 10)]
    assert progress_at([None, *history], {0: 25}).get(0).next == 20
    assert progress_at(history, {0: 30}).get(0).next == 30
    assert progress_at(history, {0: 5}) == TableProgress()
