"""Records of a positions topic are those of egest, tombstones of them, or others that change nothing."""

import pytest

from hifi.delivery.written_offsets import WrittenOffsets
from hifi_kafka.destination.positions import Position, _take

POSITION = Position(b"s;p;d;raw;0;", b"fresh")
KEY = POSITION.key(1)
((_, BITMAP),) = WrittenOffsets().with_offsets([4097]).items()


def test_a_tombstone_forgets_the_offsets_of_its_record_alone() -> None:
    offsets_by_line: dict[bytes, WrittenOffsets] = {}
    assert _take(POSITION, KEY, BITMAP, offsets_by_line)
    assert _take(POSITION, POSITION.key(2), BITMAP, offsets_by_line)
    assert 4097 in offsets_by_line[b"fresh"]
    assert _take(POSITION, KEY, None, offsets_by_line)
    assert [offset in offsets_by_line[b"fresh"] for offset in (4097, 8193)] == [False, True]


@pytest.mark.parametrize(
    ("key", "value", "is_readable"),
    [
        (None, BITMAP, False),
        (b"s;p;d;raw;0;fresh;x", BITMAP, False),
        (b"s;p;d;raw;0;fresh;-1", BITMAP, False),
        (b"s;p;d;raw;0;fresh", BITMAP, False),
        (KEY, BITMAP + b"x", False),
        (KEY, b"", False),
        (b"another;1", None, True),
    ],
)
def test_a_record_that_egest_did_not_write_changes_nothing(
    key: bytes | None, value: bytes | None, is_readable: bool
) -> None:
    offsets_by_line: dict[bytes, WrittenOffsets] = {}
    assert _take(POSITION, key, value, offsets_by_line) is is_readable
    assert offsets_by_line == {}
