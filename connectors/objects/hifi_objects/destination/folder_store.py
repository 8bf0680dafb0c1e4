"""Objects as files of a folder."""

import asyncio
import contextlib
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hifi.runtime.errors import Retryable

ABANDONED_S: Final = 600
"""Age from which on a temporary file belongs to a process that was killed, seconds: no write takes this long."""
TEMPORARY: Final = ".tmp"


class FolderStore:
    """A folder. A file gets its name only once its content is on disk, so no reader finds half of one."""

    def __init__(self, root: Path) -> None:
        """Name the folder; the first object creates it.

        Args:
            root: folder.
        """
        self._root = root
        self._cleaned: Path | None = None

    async def read(self, path: str) -> bytes | None:
        """The content of a file, durable from now on; None: it does not exist."""
        return await asyncio.to_thread(self._read, self._root / path)

    async def create(self, path: str, encode: Callable[[], bytes]) -> bool:
        """Create a file unless it exists."""
        return await asyncio.to_thread(self._create, self._root / path, encode)

    def _read(self, file: Path) -> bytes | None:
        try:
            content = file.read_bytes()
            _sync(file.parent)  # its writer may have died before this
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Retryable(f"the file {file} cannot be read: {error.strerror}") from error
        return content

    def _create(self, file: Path, encode: Callable[[], bytes]) -> bool:
        content = encode()
        temporary_path = file.parent / f".{file.name}.{uuid.uuid4().hex}{TEMPORARY}"
        try:
            self._make_folder(file.parent)
            with temporary_path.open("xb") as temporary_file:
                temporary_file.write(content)
                temporary_file.flush()
                os.fsync(temporary_file.fileno())
        except OSError as error:
            _remove(temporary_path)
            raise Retryable(f"the file {file} cannot be written: {error.strerror}") from error
        try:
            os.link(temporary_path, file)
        except FileExistsError:
            return False
        finally:
            _remove(temporary_path)
        _sync(file.parent)
        return True

    def _make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            self._clean(folder)
            return
        missing_folders = [folder, *(parent for parent in folder.parents if not parent.exists())]
        folder.mkdir(parents=True, exist_ok=True)
        for missing_folder in missing_folders:
            _sync(missing_folder.parent)

    def _clean(self, folder: Path) -> None:
        """Remove the temporary files of processes that were killed, once for each folder that is written next."""
        if self._cleaned == folder:
            return
        self._cleaned = folder
        abandoned_before_s = time.time() - ABANDONED_S
        for file in folder.glob(f".*{TEMPORARY}"):
            with contextlib.suppress(OSError):  # another process removes it
                if file.stat().st_mtime < abandoned_before_s:
                    file.unlink()


def _remove(file: Path) -> None:
    """Remove a temporary file; what cannot be removed now is removed when it is old."""
    with contextlib.suppress(OSError):
        file.unlink()


def _sync(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
