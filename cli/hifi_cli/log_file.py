"""Logs of a command that shows something else on the terminal."""

from pathlib import Path

from hifi import log


def log_to(file: Path) -> None:
    """Append this process's logs to a file from now on, as JSON lines."""
    file.parent.mkdir(parents=True, exist_ok=True)
    log.configure("mesh", "hifi", format="json", stream=file.open("a", buffering=1))
