"""The file of a step of any kind."""

from pathlib import Path

from hifi_state.fold.event_file import EventFile
from hifi_state.fold.join_file import JoinFile
from hifi_state.fold.range_folder import RangeFolder
from hifi_state.fold.window_file import WindowFile


def step_file(folder: RangeFolder, path: Path) -> WindowFile:
    """The file of a step, opened.

    Args:
        folder: of the step's declaration.
        path: of the file; its folder exists.
    """
    step = folder.declaration.step
    if step.join is not None:
        return JoinFile(path, step)
    if step.window is None:
        return EventFile(path, folder.parts, step)
    return WindowFile(path, folder.parts, has_sessions=step.gap_ms is not None)
