"""Tables in 80 columns: headings and numbers stay whole, and only text wraps."""

import io

import pytest
from rich.console import Console

from hifi_cli.display.tables import print_table, table

TERMINAL = 80


def printed(rows, width=TERMINAL):
    console = Console(width=width, file=io.StringIO(), record=True)
    print_table(rows, console)
    return console.export_text()


@pytest.fixture
def rows():
    id_table = table("=id", "name", ">accepted\nevents", ">lag p95\n", "reason")
    id_table.add_row("3:1042", "a" * 60, "1,234,567", "12,345.6 s", "the schema wants an integer " * 3)
    return id_table


def test_numbers_and_headings_are_whole_and_lines_fit(rows):
    text = printed(rows)
    assert all(
        phrase in text for phrase in ("3:1042", "accepted", "events", "1,234,567", "12,345.6 s", "reason")
    )
    assert max(map(len, text.splitlines())) <= TERMINAL
    assert "…" not in text
    assert text.replace("\n", "").count("a") >= 60, "text wraps and nothing of it is left out"


def test_lines_grow_beyond_a_terminal_that_is_narrower_than_the_numbers(rows):
    text = printed(rows, 40)
    assert "1,234,567  12,345.6 s" in text
    assert "…" not in text


def test_a_wide_terminal_wraps_nothing(rows):
    assert len(printed(rows, 300).splitlines()) == 3


@pytest.mark.parametrize("text", ["[/dev/sda]", "[/]", "[/x", "a [b] [/c]"])
def test_a_text_that_is_no_markup_is_printed_as_it_is(text):
    text_table = table("reason")
    text_table.add_row(text)
    text_table.add_row("[bold]fine[/]")
    assert text in printed(text_table)
    assert "[bold]" not in printed(text_table)
