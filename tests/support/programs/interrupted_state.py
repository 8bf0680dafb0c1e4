"""The service state, which sends itself a signal at a point, the first time after it has begun to write results."""

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hifi.delivery.raw_writer import RawWriter
from hifi.kafka.group_offsets import GroupOffsets
from hifi_state.__main__ import main
from hifi_state.fold.window_file import WindowFile
from hifi_state.fold_log import FoldLog
from hifi_state.step_runner import StepRunner

POINTS: dict[str, tuple[Any, str]] = {
    "before the results": (RawWriter, "begin"),
    "before folds": (FoldLog, "keep"),
    "before the file": (WindowFile, "apply"),
    "before the offset": (GroupOffsets, "commit"),
}


def signal_at(point: str, number: signal.Signals, marker_file: Path) -> None:
    """Send the process a signal when it gets there, unless the file says that it was sent.

    Args:
        point: of `POINTS`.
        number: SIGKILL, or SIGSTOP, after which the process goes on where it was.
        marker_file: is made before.
    """
    owner, name = POINTS[point]
    function: Callable[..., Any] = getattr(owner, name)
    write_results = StepRunner.write_results
    has_results = []

    def note_results(*args: Any, **keywords: Any) -> Any:
        has_results.append(True)
        return write_results(*args, **keywords)

    def interrupted(*args: Any, **keywords: Any) -> Any:
        if has_results and not marker_file.exists():
            marker_file.touch()
            os.kill(os.getpid(), number)
        return function(*args, **keywords)

    setattr(owner, name, interrupted)
    setattr(StepRunner, "write_results", note_results)  # noqa: B010 - mypy refuses the assignment of a method


if __name__ == "__main__":
    signal_at(sys.argv[1], signal.Signals[sys.argv[2]], Path(sys.argv[3]))
    main()
