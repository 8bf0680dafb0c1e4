"""What the marks of a source say of its snapshots and its tables. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

Marks: TypeAlias = dict[str, tuple[int, Mapping[str, Any]]]
"""Marks to their offsets in the topic of the changes, and values."""

EARLIER: Final = 2**53
"""Marks that tell of an earlier topic of the changes have offsets that are lower by it: in their order, below all
others."""
NO_MARK: Final = -(2**63)
BEGUN: Final = "snapshot"
"""Mark of the begin of the last snapshot, with the `tables` that were declared when it was read: none if some
are left out on purpose."""
ENDED: Final = "end of the snapshot"
"""Mark of the end of the last snapshot that has ended."""
SCANNED: Final = "snapshot of "
"""Begin of the mark of a table that a snapshot has read."""
COLUMNS: Final = "columns of "
"""Begin of the mark with the columns that a table has had, and the offset of the first change with each."""
RENEWED: Final = "renewed snapshot"
"""Mark of the record for which another snapshot was begun last, with the `tables` that it has to read."""
UNENDED: Final = "interrupted snapshot"
"""Mark of the record for which no other snapshot could be begun: `why`, the `tables` that were declared, and in
`unread` those whose rows no snapshot has read; without them, a snapshot was interrupted."""
ADDED: Final = "added tables"
"""Mark of the `tables` that were added to a connector: a snapshot that began before may be read after."""
READ: Final = "tables"
"""Mark of the record at which some tables were not declared any more, with the other `tables`, which were read."""


def earlier_marks_below(marks: Marks, kept_offsets: Mapping[str, int], end: int) -> Marks:
    """The marks, of which those of an earlier topic of the changes have lower offsets; see `EARLIER`.

    Args:
        marks: as they are kept.
        kept_offsets: of their records in the topic of the keys.
        end: offset before which records tell of an earlier topic.
    """
    return {
        name: (offset - EARLIER if kept_offsets[name] < end else offset, values)
        for name, (offset, values) in marks.items()
    }


def columns_by_table(marks: Marks) -> dict[str, dict[str, int]]:
    """Table to the columns that it has had, and the offset of the first change with each."""
    return {
        name.removeprefix(COLUMNS): {
            column: first_offset - EARLIER if offset < 0 else first_offset
            for column, first_offset in values.items()
        }
        for name, (offset, values) in marks.items()
        if name.startswith(COLUMNS)
    }


def scanned_tables(marks: Marks) -> dict[str, int]:
    """The tables that the snapshot has read which ends, to the offset at which it began."""
    begun_offset = mark_offset(marks, BEGUN)
    return {
        name.removeprefix(SCANNED): begun_offset
        for name, (offset, _) in marks.items()
        if name.startswith(SCANNED) and offset > begun_offset > NO_MARK
    }


def mark_offset(marks: Marks, name: str) -> int:
    """The offset of a mark; `NO_MARK`: there is none."""
    offset, _ = marks.get(name, (NO_MARK, None))
    return offset


def is_interrupted(marks: Marks, offset: int, *, begins_snapshot: bool) -> bool:
    """Whether the snapshot before a record has not ended, and nothing was done about it.

    Args:
        marks: of the source.
        offset: of the record.
        begins_snapshot: a snapshot begins with the record.
    """
    settling_marks = (ENDED, UNENDED, *([RENEWED] if begins_snapshot else []))
    settled_offset = max(mark_offset(marks, name) for name in settling_marks)
    return settled_offset < mark_offset(marks, BEGUN) < offset


def read_tables(marks: Marks, declared: Sequence[str]) -> set[str]:
    """The tables whose rows were read by a snapshot and whose changes were read since, or for which that was tried.

    A table that is no longer declared is none of them, even if it is declared again: changes are missing. One that was
    declared when a snapshot began which has not read it did not exist: all its changes are read.

    Args:
        marks: of the source.
        declared: tables, which count as those of a snapshot whose mark does not tell them.
    """
    read_offset, begun_offset = mark_offset(marks, READ), mark_offset(marks, BEGUN)
    tables = {
        name.removeprefix(SCANNED)
        for name, (offset, _) in marks.items()
        if name.startswith(SCANNED) and offset > read_offset
    }
    if read_offset <= begun_offset < mark_offset(marks, ENDED):
        added_names = {table.lower() for table in _tables_of(marks, ADDED)}
        tables.update(
            table for table in _tables_of(marks, BEGUN, declared) if table.lower() not in added_names
        )
    mark_names = [READ]
    if read_offset <= mark_offset(marks, RENEWED) < begun_offset:
        mark_names.append(RENEWED)  # what that snapshot has not read has no rows that it could
    if read_offset <= mark_offset(marks, UNENDED):
        mark_names.append(UNENDED)
    for name in mark_names:
        tables.update(_tables_of(marks, name))
    return tables


def _tables_of(marks: Marks, name: str, default: Sequence[str] = ()) -> Sequence[str]:
    _, values = marks.get(name, (NO_MARK, {}))
    tables: Sequence[str] = values.get("tables", default)
    return tables


def with_added(marks: Marks, added: Iterable[str]) -> list[str]:
    """The tables of the mark `ADDED` when some are added to a connector."""
    return sorted({*_tables_of(marks, ADDED), *added})


def unread_tables(marks: Marks, declared: Sequence[str]) -> list[str]:
    """The declared tables whose rows no snapshot has read; empty, if no snapshot is known that has ended.

    Debezium's names of tables are those of the database; it takes declared ones in any case.
    """
    if ENDED not in marks:
        return []
    table_names = {table.lower() for table in read_tables(marks, declared)}
    return sorted(table for table in declared if table.lower() not in table_names)
