"""Progress of what reads records, on standard error."""

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hifi_cli.display.console import errors


def record_progress(what: str) -> Progress:
    """A bar with the number of records done and the time so far; it is removed at the end.

    Args:
        what: is done, such as `replaying`.
    """
    return Progress(
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=errors,
        transient=True,
    )
