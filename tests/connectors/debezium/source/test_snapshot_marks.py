"""The marks of a source say which snapshot has not ended, and which tables no snapshot has read."""

from typing import Any

import pytest

from hifi_debezium.source.snapshot_marks import (
    ADDED,
    BEGUN,
    COLUMNS,
    EARLIER,
    ENDED,
    READ,
    RENEWED,
    SCANNED,
    UNENDED,
    columns_by_table,
    earlier_marks_below,
    is_interrupted,
    read_tables,
    scanned_tables,
    unread_tables,
    with_added,
)

A, B, C = "public.a", "public.b", "public.c"


def marks(**offsets: Any) -> Any:
    """Marks of the first snapshot of the table A, at the offsets 0, 1 and 2, and others."""
    names = {
        "renewed": RENEWED, "unended": UNENDED, "read": READ, "begun": BEGUN, "ended": ENDED, "added": ADDED,
    }  # fmt: skip
    first_marks: Any = {BEGUN: (0, {"tables": [A]}), SCANNED + A: (1, {}), ENDED: (2, {})}
    return first_marks | {
        names[name]: (offset, {"tables": tables}) for name, (offset, tables) in offsets.items()
    }


def test_a_table_that_no_snapshot_has_read_is_unread() -> None:
    assert unread_tables(marks(), [A]) == []
    assert unread_tables(marks(), ["PUBLIC.A"]) == [], "Debezium finds it so, too"
    assert unread_tables(marks(), [B, A]) == [B]


@pytest.mark.parametrize("snapshot_marks", [{}, {BEGUN: (0, {}), SCANNED + A: (1, {})}])
def test_no_table_is_unread_where_no_snapshot_is_known_that_has_ended(snapshot_marks: Any) -> None:
    assert unread_tables(snapshot_marks, [A, B]) == []


def test_a_table_for_which_a_snapshot_was_made_or_refused_is_not_asked_for_again() -> None:
    asked = {"renewed": (5, [A, B])}
    assert unread_tables(marks(**asked), [A, B]) == [B], "the snapshot has not begun"
    assert unread_tables(marks(**asked, begun=(6, ()), ended=(9, ())), [A, B]) == []
    assert unread_tables(marks(unended=(5, [A, B])), [A, B]) == []
    assert unread_tables(marks(unended=(5, [A, B])), [A, B, C]) == [C]


def test_a_table_that_was_declared_when_a_snapshot_began_did_not_exist_then() -> None:
    assert unread_tables(marks(begun=(0, [A, B])), [A, B]) == []
    assert unread_tables(marks(begun=(0, [A, B])), [A, "public.B", C]) == [C]
    assert unread_tables(marks(begun=(0, [A, B]), unended=(5, [A, C])), [A, B, C]) == []
    assert unread_tables(marks(begun=(3, [A, B]), unended=(5, [A])), [A, B]) == [B], "it has not ended"
    assert unread_tables(marks(begun=(0, [A, B]), read=(5, [A])), [A, B]) == [B]


def test_a_table_that_was_added_before_the_begin_of_a_snapshot_was_read_is_unread_until_another_one() -> None:
    added_marks = marks(begun=(0, [A, B]), added=(0, with_added({}, [B])))
    assert unread_tables(added_marks, [A, B]) == [B]
    assert unread_tables(added_marks, [A, "public.B"]) == ["public.B"]
    assert (
        unread_tables(added_marks | marks(renewed=(5, [A, B]), begun=(6, [A, B]), ended=(9, ())), [A, B])
        == []
    )
    assert unread_tables(added_marks | {SCANNED + B: (1, {})}, [A, B]) == []
    assert with_added(added_marks, [C, B]) == [B, C]


def test_of_a_snapshot_whose_mark_does_not_tell_its_tables_only_added_ones_are_unread() -> None:
    snapshot_marks = marks() | {BEGUN: (0, {})}
    assert unread_tables(snapshot_marks, [A, B]) == [], "an upgrade makes no snapshot"
    assert unread_tables(snapshot_marks | marks(added=(0, [C])) | {BEGUN: (0, {})}, [A, B, C]) == [C]
    assert read_tables(snapshot_marks, [A, B]) == {A, B}


def test_a_table_that_was_not_declared_for_a_while_is_unread() -> None:
    assert unread_tables(marks(read=(5, [])), [A]) == [A]
    assert unread_tables(marks(read=(5, [A])) | {SCANNED + B: (3, {})}, [A, B]) == [B]
    assert unread_tables(marks(read=(5, [A])) | {SCANNED + B: (7, {})}, [A, B]) == []
    asked = {"renewed": (4, [A, B]), "begun": (6, ()), "ended": (9, ())}
    assert unread_tables(marks(**asked, read=(10, [A])), [A, B]) == [B]


def test_a_snapshot_is_interrupted_that_has_not_ended_before_a_record() -> None:
    begun_marks = marks(begun=(5, ()))
    assert not is_interrupted(marks(), 9, begins_snapshot=False)
    assert is_interrupted(begun_marks, 9, begins_snapshot=False)
    assert not is_interrupted(begun_marks, 5, begins_snapshot=True), "the record is its begin"
    renewed = marks(begun=(5, ()), renewed=(6, ()))
    assert not is_interrupted(renewed, 9, begins_snapshot=True)
    assert is_interrupted(renewed, 9, begins_snapshot=False)
    assert not is_interrupted(marks(begun=(5, ()), unended=(6, ())), 9, begins_snapshot=False)


def test_marks_of_an_earlier_topic_of_the_changes_are_before_all_of_this_one_in_their_order() -> None:
    kept: Any = {BEGUN: (500, {}), ENDED: (400, {}), COLUMNS + A: (7, {"id": 7}), SCANNED + A: (1, {})}
    marks_now = earlier_marks_below(kept, {BEGUN: 3, ENDED: 2, COLUMNS + A: 0, SCANNED + A: 5}, 5)
    assert is_interrupted(marks_now, 0, begins_snapshot=False)
    assert scanned_tables(marks_now) == {A: 500 - EARLIER}
    assert columns_by_table(marks_now) == {A: {"id": 7 - EARLIER}}
    assert earlier_marks_below(kept, dict.fromkeys(kept, 0), 0) == kept
