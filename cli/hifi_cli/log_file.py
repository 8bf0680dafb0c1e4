"""Send the logs of a command to a file while the terminal shows its progress."""

from pathlib import Path

from hifi.runtime import log


def log_to(file: Path) -> None:
    """Append this process's logs to a file as JSON lines, starting now."""
    file.parent.mkdir(parents=True, exist_ok=True)
    log.configure("mesh", "hifi", format="json", stream=file.open("a", buffering=1))
