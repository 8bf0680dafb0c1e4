"""Texts of senders cannot control the terminal: control characters are printed as escapes."""

import ast
import io
import json
import sys
import unicodedata
from pathlib import Path

import pytest
from rich.markup import escape

from hifi_cli.display.console import VisibleConsole, print_json, print_text, visible
from hifi_cli.display.tables import print_table, table

HARMFUL = [
    chr(code)
    for code in range(0x110000)
    if (unicodedata.category(chr(code)) in ("Cc", "Cs", "Zl", "Zp") and chr(code) not in "\t\n")
] + list("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
ATTACKS = [
    "\x1b]0;title\x07",
    "\x1b[2J\x1b[H",
    "\x1b]52;c;Y3VybA==\x07",
    "\x9b31m",
    "\rok",
    "a\x08\x08b",
    "\x1bP0;1|17/ab\x1b\\",
    "\u202egpj.exe",
]


def is_harmless(text: str) -> bool:
    return not any(harmful in text for harmful in HARMFUL)


def test_each_control_character_is_an_escape_and_the_rest_stays() -> None:
    assert all(is_harmless(visible(f"a{harmful}b")) for harmful in HARMFUL)
    for text in ("", "plain", "tab\there\nand there", "Zürich 東京 🚀 👩\u200d🚀", "[bold]"):
        assert visible(text) == text
    assert visible("\x1b[31m") == "\\x1b[31m"


@pytest.mark.parametrize("attack", ATTACKS)
def test_tables_and_messages_hold_no_control_character_of_a_text(attack: str) -> None:
    for terminal in (False, True):
        output = io.StringIO()
        visible_console = VisibleConsole(file=output, force_terminal=terminal, color_system=None, width=200)
        rows = table("=id", "text", title=f"of {escape(attack)}")
        rows.add_row(escape(attack), escape(f"x{attack}"))
        print_table(rows, visible_console)
        visible_console.print(escape(attack), attack, highlight=False, markup=False)
        assert is_harmless(output.getvalue())


@pytest.mark.parametrize("attack", ATTACKS)
def test_json_holds_no_control_character_and_the_same_value(
    attack: str, capsys: pytest.CaptureFixture[str]
) -> None:
    print_json({"value": attack})
    output = capsys.readouterr().out
    assert is_harmless(output)
    assert json.loads(output) == {"value": attack}


@pytest.mark.parametrize("attack", ATTACKS)
def test_data_is_escaped_on_a_terminal_and_as_it_is_in_a_pipe(
    attack: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    print_text(attack)
    assert capsys.readouterr().out == attack + "\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    print_text(attack)
    assert is_harmless(capsys.readouterr().out)


PLAIN_PRINTS = {
    "commands/acl.py": "commands for a shell, each word quoted; the names are this person's arguments",
    "commands/console.py": "an address that observe made",
    "commands/report.py": "a signed document, whose bytes count; control characters are escaped on a terminal",
    "commands/topics.py": "commands for a shell; names of a stream have letters and digits only",
    "demo/sender.py": "figures of this program",
    "display/console.py": "the functions that escape",
    "display/mesh_view.py": "phases of this program",
    "reference/terminal.py": "draws pictures for the documentation",
}
"""Files that print without the console, each with the reason why no text of others reaches a terminal so."""


@pytest.mark.slow
def test_no_text_is_printed_but_by_the_functions_that_escape() -> None:
    """A console of rich that is not the one that escapes, `print` and writing to standard output count."""
    folder = Path(__file__).parents[3] / "cli/hifi_cli"
    printing = {
        str(file.relative_to(folder))
        for file in folder.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and (
            ast.unparse(node.func) in ("print", "Console", "typer.echo")
            or "stdout.write" in ast.unparse(node.func)
        )
    }
    assert printing == PLAIN_PRINTS.keys()
