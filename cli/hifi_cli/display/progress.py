"""Progress of what reads records, on standard error."""

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from hifi_cli.display.console import errors


def record_progress(activity: str) -> Progress:
    """A bar with the number of records done and the time so far; it is removed at the end.

    Args:
        activity: text before the bar, such as `replaying`.
    """
    return Progress(
        TextColumn(activity),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=errors,
        transient=True,
    )
