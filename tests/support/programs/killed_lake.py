"""The service lake, which kills itself (SIGKILL) the first time that it reaches the function that KILL_AT names."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hifi_iceberg.destination.commits import TableCommits
from hifi_lake.__main__ import main
from hifi_lake.batch import outcomes
from hifi_lake.stream import LakeStream

POINTS: dict[str, tuple[Any, str]] = {
    "before the commit": (TableCommits, "_commit"),
    "before the receipts": (outcomes, "receipts"),
    "before the offsets": (LakeStream, "commit"),
}


def kill_at(point: str, marker_file: Path) -> None:
    """Let the process die when it gets there, unless the file says that it did."""
    owner, name = POINTS[point]
    function: Callable[..., Any] = getattr(owner, name)

    def die(*args: Any, **keywords: Any) -> Any:
        if marker_file.exists():
            return function(*args, **keywords)
        marker_file.touch()
        return os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, name, die)


if __name__ == "__main__":
    kill_at(sys.argv[1], Path(sys.argv[2]))
    main()
