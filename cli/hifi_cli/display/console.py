"""The two consoles of the command line: results on standard output, everything else on standard error."""

from typing import Any, Final

import orjson
from rich.console import Console

console: Final = Console()
"""Results, on standard output."""
errors: Final = Console(stderr=True)
"""Errors and progress, on standard error, so that results can be piped into another program."""


def print_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    print(orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str).decode())
