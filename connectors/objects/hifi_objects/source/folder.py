"""Objects that are files of a folder."""

import asyncio
import contextlib
import os
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import BinaryIO

from hifi.pipe.limits import pipe_limits
from hifi.runtime.errors import Retryable
from hifi_objects.source.store import OpenObject
from hifi_objects.source.version import ObjectGone, ObjectRefused, ObjectUnreadable, ObjectVersion, shown

_HIDDEN = (".", "_")


class ReadableFolder:
    """A folder with all folders below it."""

    def __init__(self, root: Path) -> None:
        """Name the folder.

        Args:
            root: absolute path.
        """
        self._root = root
        self.problems: list[str] = []
        self.name = f"folder{root}"
        self.url = f"file://{root}"

    async def listed(self) -> list[ObjectVersion]:
        """All files, without hidden ones, pipes, devices and links to outside of the folder."""
        return await asyncio.to_thread(lambda: list(self._files()))

    def refusal(self, version: ObjectVersion) -> str | None:  # noqa: ARG002 - any name can be read
        """None: a file can be read whatever its name is."""
        return None

    @contextlib.asynccontextmanager
    async def opened(self, version: ObjectVersion) -> AsyncIterator[OpenObject]:
        """Open a file. It stays readable when it is removed; when it is written to, it is another version."""
        file = await asyncio.to_thread(self._open, version)

        def check() -> None:
            """Compare size and time."""
            if _version(os.fstat(file.fileno())) != version.version:
                raise ObjectGone(f"the file {version.shown_path} was changed while it was read")

        try:
            check()
            yield OpenObject(file, check)
        finally:
            file.close()

    def _open(self, version: ObjectVersion) -> BinaryIO:
        path = self._root / version.path
        try:
            return path.open("rb")
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise ObjectGone(f"the file {version.shown_path} was removed") from None
        except PermissionError as error:
            raise ObjectRefused(f"the file {version.shown_path} cannot be read: {error.strerror}") from error
        except OSError as error:
            raise ObjectUnreadable(
                f"the file {version.shown_path} cannot be read: {error.strerror}"
            ) from error

    def _files(self) -> Iterator[ObjectVersion]:
        root, limits = Path(os.path.realpath(self._root)), pipe_limits()
        problems: list[str] = []

        def fail(error: OSError) -> None:
            name = str(error.filename)
            problem = f"the folder {shown(name)} cannot be listed: {error.strerror}"
            if Path(name) == root:
                raise Retryable(problem) from error
            if not isinstance(error, FileNotFoundError):
                problems.append(problem)

        for folder, folders, file_names in os.walk(root, onerror=fail):
            folders[:] = [name for name in folders if not name.startswith(_HIDDEN)]
            for name in file_names:
                file = Path(folder) / name
                if name.startswith(_HIDDEN) or (
                    file.is_symlink() and not Path(os.path.realpath(file)).is_relative_to(root)
                ):
                    continue
                try:
                    status = file.stat()
                except FileNotFoundError:
                    continue
                except OSError as error:  # such as a link to itself
                    problems.append(f"the file {shown(str(file))} cannot be looked at: {error.strerror}")
                    continue
                if stat.S_ISREG(status.st_mode) and limits.refuse_source_file(file) is None:
                    path = file.relative_to(root).as_posix()
                    yield ObjectVersion(path, _version(status), status.st_size, status.st_mtime_ns // 1000)
        self.problems = problems


def _version(status: os.stat_result) -> str:
    return f"{status.st_mtime_ns:x}-{status.st_size:x}"
