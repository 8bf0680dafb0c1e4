"""What a person or a program reads: one console for results, one for everything else."""

from typing import Any, Final

import orjson
from rich.console import Console
from rich.table import Table

console: Final = Console()
"""Results, on standard output."""
errors: Final = Console(stderr=True)
"""Errors and progress, on standard error, so that results can be piped on."""


def print_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str).decode())


def table(*columns: str, title: str | None = None) -> Table:
    """A plain table; a column whose name starts with `>` is set to the right."""
    made = Table(
        title=title, title_justify="left", box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0)
    )
    for column in columns:
        made.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
    return made


def milliseconds(value_ms: float | None) -> str:
    """`340 ms`, `1.25 s`; a dash for nothing."""
    if value_ms is None:
        return "-"
    if value_ms < 10:
        return f"{value_ms:.1f} ms"
    return f"{value_ms:,.0f} ms" if value_ms < 10_000 else f"{value_ms / 1000:,.1f} s"


def mebibytes(value_bytes: float) -> str:
    """`123 MiB`."""
    return f"{value_bytes / 1024 / 1024:,.0f} MiB"
