"""A backlog that does not fit on the disk for temporary files is written in smaller batches."""

from hifi_lake.batch.batch_size import NO_SPACE, BatchSize, naming_lack_of_space


def test_a_full_disk_halves_batches_at_an_equal_rate_and_other_errors_do_not() -> None:
    size = BatchSize(2_000_000, 60)
    assert not size.reduce("ConnectionError: refused", 800_000)
    assert size.records == 2_000_000
    assert size.reduce(
        naming_lack_of_space("Py4JJavaError: count", f"java.io.IOException: {NO_SPACE}"), 1_000_000
    )
    assert (size.records, size.interval_s) == (500_000, 15)
    assert size.reduce(NO_SPACE, 10)
    assert size.records == 1000
    assert not size.reduce(NO_SPACE, 1000)
    assert not BatchSize(10, 60).reduce(NO_SPACE, 10)


def test_batches_grow_again() -> None:
    size = BatchSize(8000, 60)
    size.reduce(NO_SPACE, 4000)
    for _ in range(4):
        size.finish(1999, 2000)  # Spark rounds the share of each partition down
    assert size.records == 2000
    size.finish(1999, 2000)
    assert size.records == 4000
    size.finish(2000, 2000)
    assert size.records == 4000, "that query began before"
    size.finish(3000, 4000)
    assert size.records == 8000, "there is no backlog any more"
