"""Data files of a table: where Spark writes and reads them, and which ones nothing refers to.

With a folder as the warehouse, Spark writes below the table at once. With S3, for which Spark has no client here, it
writes to a temporary folder, from which the driver uploads, and files that Spark has to read are downloaded to it: its
tasks must run on the driver's machine.
"""

import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final
from urllib.parse import urlparse

from pyarrow import parquet
from pyarrow.fs import FileSelector, FileSystem, copy_files
from pyiceberg.table import Table

from hifi.runtime.errors import Retryable
from hifi_iceberg.destination.progress import TableOwner
from hifi_iceberg.destination.restricted_catalog import WarehouseFileIO

PREFIX: Final = "hifi-"
"""Prefix of the names of folders with data files, below `data` of a table; that of the owner follows."""
ABANDONED: Final = timedelta(days=1)
"""Age from which on files of another owner that nothing refers to are of no batch that is under way."""


def is_folder(location: str) -> bool:
    """Whether a table, by its location, is in a folder, so that Spark reads and writes its data files there. Pure."""
    return urlparse(location).scheme in {"", "file"}


class FileStore:
    """The data files of one table that this service writes."""

    def __init__(self, table: Table, owner: TableOwner, writer: str, scratch: Path) -> None:
        """Write nothing yet.

        Args:
            table: open.
            owner: of the files.
            writer: a name that was never used before.
            scratch: folder for temporary files.

        Raises:
            Misconfigured: the table is not in the warehouse.
        """
        assert isinstance(table.io, WarehouseFileIO)
        table.io.require_within(table.location())
        self._io = table.io
        self._table = table
        self._prefix = PREFIX + owner.file_prefix
        self._writer = writer
        self._batches = 0
        location = urlparse(table.location())
        self._scheme = location.scheme or "file"
        self._files: FileSystem = table.io.fs_by_scheme(self._scheme, location.netloc)
        self._local = is_folder(table.location())
        self._root = f"{'' if self._local else location.netloc}{location.path}/data"
        self._scratch = scratch / f"{self._prefix}{writer}"

    def new_folder(self) -> str:
        """A path, not used before, to which Spark can write."""
        self._batches += 1
        name = f"{self._prefix}{self._writer}-{self._batches}"
        return f"{self._root}/{name}" if self._local else str(self._scratch / name)

    def publish(self, folder: str, row_count: int) -> list[str]:
        """Make the data files in a folder part of the warehouse.

        Args:
            folder: see `new_folder`.
            row_count: number of rows that Spark wrote to it.

        Returns:
            Their URLs there.

        Raises:
            Retryable: the files that this process sees have another number of rows; none becomes part of it.
        """
        local_files = sorted(Path(folder).rglob("*.parquet"))
        visible_row_count = sum(parquet.read_metadata(path).num_rows for path in local_files)
        if visible_row_count != row_count:
            raise Retryable(
                f"Spark wrote {row_count} rows to the folder {folder}, but in it are {len(local_files)} files with "
                f"{visible_row_count} rows: all of Spark's executors must have this folder, as a volume that they share"
            )
        if self._local:
            return [f"file://{path}" for path in local_files]
        local_folder = Path(folder)
        urls = []
        for path in local_files:
            target = f"{self._root}/{local_folder.name}/{path.relative_to(local_folder)}"
            copy_files(str(path), target, destination_filesystem=self._files)
            urls.append(f"{self._scheme}://{target}")
        shutil.rmtree(local_folder, ignore_errors=True)
        return urls

    def readable(self, urls: Sequence[str]) -> list[str]:
        """Paths from which Spark can read data files, in their order. They are valid until the next call.

        Raises:
            Misconfigured: one is not in the warehouse.
        """
        for url in urls:
            self._io.require_within(url)
        if self._local:
            return [urlparse(url).path for url in urls]
        folder = self._scratch / "read"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        paths = [str(folder / url.rpartition("/")[2]) for url in urls]
        for url, path in zip(urls, paths, strict=True):
            copy_files(url.partition("://")[2], path, source_filesystem=self._files)
        return paths

    def delete_unreferenced(self, require_ownership: Callable[[], None]) -> int:
        """Delete the data files of hifi that no snapshot refers to; returns how many.

        They are those of batches that were never committed, and those of which all snapshots have expired. No batch
        of this owner may be under way; of others, whose batches may be, only old files are deleted.

        Args:
            require_ownership: reads the table again, and raises if another instance writes it. It is called once the
                files are listed: then no file among them can still become part of the table.
        """
        selector = FileSelector(self._root, recursive=True, allow_not_found=True)
        abandoned_before = datetime.now(UTC) - ABANDONED
        paths = [
            file.path
            for file in self._files.get_file_info(selector)
            if file.is_file
            and (
                (name := file.path.removeprefix(self._root).lstrip("/")).startswith(self._prefix)
                or (name.startswith(PREFIX) and file.mtime < abandoned_before)
            )
        ]
        if not paths:
            return 0
        require_ownership()
        referenced_paths = self._referenced()
        unused_paths = [path for path in paths if path not in referenced_paths]
        for path in unused_paths:
            self._files.delete_file(path)
        return sum(path.endswith(".parquet") for path in unused_paths)

    def _referenced(self) -> set[str]:
        """Paths of the data files of all snapshots."""
        io = self._table.io
        manifests = {
            manifest.manifest_path: manifest
            for snapshot in self._table.snapshots()
            for manifest in snapshot.manifests(io)
        }
        return {
            entry.data_file.file_path.partition("://")[2]
            for manifest in manifests.values()
            for entry in manifest.fetch_manifest_entry(io)
        }
