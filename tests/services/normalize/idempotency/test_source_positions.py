"""Events of sources that were read before are recognized, also after readers and normalize have read some again."""

import random

import pytest

from hifi.record.source_position import SourcePosition
from hifi_normalize.idempotency.source_positions import SourcePositions

SOURCE = b"kafka/cluster/orders/3"


def source_position(run: int, position: int, source: bytes = SOURCE) -> SourcePosition:
    """A position that a run of the reader wrote."""
    return SourcePosition(b"%016x" % run, position, source)


def passed_offsets(positions: SourcePositions, log: list[SourcePosition], start: int = 0) -> list[int]:
    """Offsets of those records, from an offset on, that are no copies."""
    return [
        offset
        for offset, position in enumerate(log)
        if offset >= start and not positions.is_copy("p", position, offset)
    ]


def taken_over(positions: SourcePositions, committed: int) -> SourcePositions:
    """Positions that the next owner reads."""
    _, records = positions.take_unwritten(committed)
    source_positions = SourcePositions()
    for record in records:
        assert record.key is not None
        assert record.value is not None
        source_positions.load(record.key, record.value)
    return source_positions


def test_what_a_reader_reads_again_is_a_copy_and_what_follows_is_not() -> None:
    log = [
        source_position(1, 5),
        source_position(1, 7),
        source_position(1, 9),
        source_position(2, 7),
        source_position(2, 9),
        source_position(2, 12),
    ]
    assert passed_offsets(SourcePositions(), log) == [0, 1, 2, 5]


def test_pipes_and_source_partitions_do_not_affect_each_other() -> None:
    positions = SourcePositions()
    assert not positions.is_copy("p", source_position(1, 5), 0)
    assert not positions.is_copy("q", source_position(1, 5), 1)
    assert not positions.is_copy("p", source_position(1, 5, b"kafka/cluster/orders/4"), 2)
    assert positions.is_copy("p", source_position(2, 5), 3)


def test_records_that_hifi_wrote_twice_in_one_run_pass_to_be_dropped_by_egest() -> None:
    # A rebuilt producer sends a batch again with the same identities: egest drops it by them.
    assert passed_offsets(
        SourcePositions(),
        [
            source_position(1, 5),
            source_position(1, 6),
            source_position(1, 5),
            source_position(1, 6),
            source_position(1, 7),
        ],
    ) == [0, 1, 2, 3, 4]


def test_a_late_write_of_an_earlier_reader_loses_nothing() -> None:
    log = [
        source_position(1, 1),
        source_position(2, 1),
        source_position(2, 2),
        source_position(1, 2),
        source_position(1, 3),
        source_position(2, 3),
        source_position(2, 4),
    ]
    assert [log[offset].position for offset in passed_offsets(SourcePositions(), log)] == [1, 2, 3, 4]


def test_decisions_are_the_same_after_any_takeover_even_if_what_was_written_is_ahead_of_the_commit() -> None:
    chance = random.Random(7)
    for _ in range(300):
        log: list[SourcePosition] = []
        begin = end = 0
        for run in range(chance.randint(1, 6)):
            end = max(end, begin) + chance.randint(0, 5)
            # A partition of `raw` has some of the positions: those whose key belongs to it.
            log += [source_position(run, position) for position in range(begin, end) if position % 3]
            begin = chance.randint(begin, end)
        expected = passed_offsets(SourcePositions(), log)
        assert sorted({copy.position for copy in log}) == [log[offset].position for offset in expected]

        positions, committed = SourcePositions(), 0
        while committed < len(log):
            read_end = chance.randint(committed, len(log))
            assert passed_offsets(positions, log[:read_end], committed) == [
                expected_offset for expected_offset in expected if committed <= expected_offset < read_end
            ]
            positions = taken_over(positions, committed) if read_end > committed else positions
            committed = chance.randint(committed, read_end)


def test_an_older_record_of_the_topic_changes_nothing() -> None:
    positions = SourcePositions()
    positions.is_copy("p", source_position(1, 5), 0)
    _, old_records = positions.take_unwritten(0)
    positions.is_copy("p", source_position(1, 8), 1)
    _, new_records = positions.take_unwritten(0)
    source_positions = SourcePositions()
    for record in (*new_records, *old_records):  # one that a fenced owner wrote late
        assert record.key is not None
        assert record.value is not None
        source_positions.load(record.key, record.value)
    assert source_positions.is_copy("p", source_position(2, 8), 2)


def test_what_is_kept_of_a_source_partition_does_not_grow_with_its_runs() -> None:
    positions = SourcePositions()
    for run in range(1000):
        positions.is_copy("p", source_position(run, run), run)
    _, records = positions.take_unwritten(committed=995)
    assert records[0].value is not None
    assert len(records[0].value) < 400


def test_what_cannot_be_written_is_still_unwritten() -> None:
    positions = SourcePositions()
    positions.is_copy("p", source_position(1, 2**64), 0)
    for _ in range(2):
        with pytest.raises(TypeError):
            positions.take_unwritten(0)
    assert positions.unwritten == {b"p;" + SOURCE}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"p;s", None),
        (None, b'{"highest": 1, "through": 1, "runs": []}'),
        (b"p;s", b"\xff"),
        (b"p;s", b"[]"),
        (b"p;s", b'{"highest": 1, "through": 1}'),
        (b"p;s", b'{"highest": "1", "through": 1, "runs": []}'),
        (b"p;s", b'{"highest": 18446744073709551616, "through": 1, "runs": []}'),
        (b"p;s", b'{"highest": 1, "through": 1, "runs": [[1, 2]]}'),
    ],
)
def test_a_record_of_another_form_is_refused_and_nothing_of_it_is_kept(
    key: bytes | None, value: bytes | None
) -> None:
    positions = SourcePositions()
    with pytest.raises(ValueError):
        positions.load(key, value)
    assert len(positions) == 0


@pytest.mark.parametrize("position", [2**63 + 42, 2**64 - 1])
def test_positions_of_64_bits_are_known_to_the_next_owner(position: int) -> None:
    positions, source = SourcePositions(), SourcePosition(b"1" * 16, position, b"sql/orders")
    assert not positions.is_copy("orders", source, 7)
    _, [record] = positions.take_unwritten(0)
    next_positions = SourcePositions()
    next_positions.load(record.key, record.value)
    assert next_positions.is_copy("orders", source._replace(run=b"2" * 16), 8)
