"""Tables that stay readable in a narrow terminal: text wraps, numbers and headings are never cut.

Text that senders choose, such as ids, is cut by `short`.
"""

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.errors import MarkupError
from rich.style import StyleType
from rich.table import Column, Table
from rich.text import Text

GAP: Final = 2
"""Spaces after each column."""
TEXT_MIN: Final = 6
"""Characters that a column of text has at least, where it has that many."""


SHORT: Final = 48
"""Characters of a text that `short` leaves."""


class TextTable(Table):
    """A table in which a text that is no markup, such as `[/x]`, is shown as it is; other texts need `escape`."""

    def add_row(
        self,
        *renderables: RenderableType | None,
        style: StyleType | None = None,
        end_section: bool = False,
    ) -> None:
        """Add a row as rich does."""
        super().add_row(*map(_cell, renderables), style=style, end_section=end_section)


def _cell(cell: RenderableType | None) -> RenderableType | None:
    try:
        return Text.from_markup(cell) if isinstance(cell, str) else cell
    except MarkupError:
        return Text(str(cell))


def short(text: str) -> str:
    """Text that a sender chose, cut to a length that keeps the table readable; `--json` has all of it."""
    return text if len(text) <= SHORT else f"{text[: SHORT - 1]}…"


def table(*columns: str, title: str | None = None) -> Table:
    """Make a plain table.

    Args:
        columns: headings. One that starts with `>` is a column of numbers, aligned right and never wrapped; one that
            starts with `=` is text that is never wrapped. A second line of a heading gives the unit.
        title: printed above the table.
    """
    rows = TextTable(
        title=title,
        title_justify="left",
        title_style="bold",
        box=None,
        pad_edge=False,
        header_style="bold",
        padding=(0, GAP, 0, 0),
    )
    for column in columns:
        rows.add_column(
            column.lstrip(">="),
            justify="right" if column.startswith(">") else "left",
            no_wrap=column.startswith((">", "=")),
            overflow="fold",
            vertical="top",
        )
    return rows


def print_table(rows: Table, console: Console) -> None:
    """Print a table. Where the terminal is narrower than its numbers, the lines get longer than the terminal."""
    width = console.width
    needed_width = fit(rows, width)
    try:
        console.width = max(width, needed_width)
        console.print(rows)
    finally:
        console.width = width


def fit(rows: Table, width: int) -> int:
    """Set the width of each column so that only text wraps, and return the width of the table in characters."""
    natural_widths = [_widest(column) for column in rows.columns]
    least_widths = [
        width_needed if column.no_wrap else min(width_needed, max(TEXT_MIN, _heading_word(column)))
        for column, width_needed in zip(rows.columns, natural_widths, strict=True)
    ]
    word_widths = [
        max(size, _longest_word(column)) for column, size in zip(rows.columns, least_widths, strict=True)
    ]
    room = width - GAP * len(least_widths)
    widths = _share(_share(least_widths, word_widths, room), natural_widths, room)
    for column, size in zip(rows.columns, widths, strict=True):
        column.width = size
    return sum(widths) + GAP * len(widths)


def _share(least_widths: Sequence[int], preferred_widths: Sequence[int], width: int) -> list[int]:
    """Give each column its least width, then the free characters to the columns that want more, evenly."""
    widths, free_width = list(least_widths), width - sum(least_widths)
    while free_width > 0 and (
        short_columns := [index for index, size in enumerate(widths) if size < preferred_widths[index]]
    ):
        for index in short_columns[:free_width]:
            widths[index] += 1
        free_width -= len(short_columns[:free_width])
    return widths


def _widest(column: Column) -> int:
    lines = [line for text in (column.header, *column.cells) for line in _plain(text).splitlines()]
    return max((cell_len(line) for line in lines), default=0)


def _longest_word(column: Column) -> int:
    return max((cell_len(word) for text in column.cells for word in _plain(text).split()), default=0)


def _heading_word(column: Column) -> int:
    return max((cell_len(word) for word in _plain(column.header).split()), default=0)


def _plain(text: object) -> str:
    return text.plain if isinstance(text, Text) else Text.from_markup(str(text)).plain
