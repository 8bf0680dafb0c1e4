"""Say what is missing in a result."""

from collections.abc import Iterable

from rich.markup import escape

from hifi_cli.display.console import errors


def print_gaps(gaps: Iterable[str]) -> None:
    """Print what is missing in a result and why, a line each, on standard error."""
    for gap in gaps:
        errors.print(f"[yellow]{escape(gap)}[/]", highlight=False, soft_wrap=True)
