"""Commits data files and progress to one Iceberg table, each in one snapshot.

Iceberg commits are optimistic: one that others were faster than fails and is tried again on the newer snapshot. Before
each attempt the progress in the table must be the one that the files were made for. When this instance takes the
table over, it commits a snapshot without data, so that a commit of an earlier owner, which may still be under way,
fails: then the progress that it is made for is of another writer. Progress and writer are those of one log of the
stream: services of other logs append to the table at the same time.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import StringType
from pyiceberg.utils.concurrent import ExecutorFactory
from pyiceberg.utils.properties import property_as_bool

from hifi.runtime import log, metrics
from hifi.runtime.backoff import backoff_s
from hifi.runtime.errors import Fenced, Retryable
from hifi_iceberg.destination.progress import OFFSETS, SETTLED_UNTIL, WRITER, TableProgress, progress_at

_BACKOFF_S: Final = (0.05, 0.2, 0.5, 1.0, 2.0)

logger = log.get(__name__)


class TableCommits:
    """Commits to one table, as long as no other instance takes it over."""

    def __init__(
        self,
        table: Table,
        log: str,
        writer: str,
        attempts: int,
        settled_until: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Take the table over.

        Args:
            table: open.
            log: identity of the stream's log.
            writer: a name that was never used before.
            attempts: to commit while others do.
            settled_until: returns the time before which every acknowledged event has its outcome, so that its row, if
                it has any, is in the table; None: it is unknown, or not asked for.

        Raises:
            Retryable: others committed at each attempt.
        """
        self.table: Final = table
        self._offsets = OFFSETS + log
        self._writer_name = WRITER + log
        self._writer = writer
        self._attempts = attempts
        self._settled_until = settled_until
        self._settled_name = SETTLED_UNTIL + log
        self.progress = TableProgress()
        self._take_over()

    def progress_at(self, offsets: Mapping[int, int]) -> TableProgress:
        """The progress that the table had when the query committed these offsets of `enriched`."""
        return progress_at((_property(snapshot, self._offsets) for snapshot in self._history()), offsets)

    def append(self, files: Sequence[str], progress: TableProgress) -> None:
        """Add data files.

        Raises:
            Fenced: another instance writes the table.
            Retryable: others committed at each attempt.
        """

        def add(change: Transaction) -> None:
            update = change.update_snapshot(snapshot_properties=self._properties(progress))
            merges_manifests = property_as_bool(
                self.table.properties,
                TableProperties.MANIFEST_MERGE_ENABLED,
                TableProperties.MANIFEST_MERGE_ENABLED_DEFAULT,
            )
            data_files = list(ExecutorFactory.get_or_create().map(self._data_file, files))
            with update.merge_append() if merges_manifests else update.fast_append() as snapshot:
                for data_file in data_files:
                    snapshot.append_data_file(data_file)

        self._commit(add)
        self.progress = progress

    def replace(self, old_files: Sequence[DataFile], files: Sequence[str], progress: TableProgress) -> None:
        """Replace data files by others.

        Raises:
            Fenced: another instance writes the table.
            Retryable: others committed at each attempt, or replaced one of the old files.
        """

        def swap(change: Transaction) -> None:
            present_paths = {data_file.file_path for data_file in self.data_files()}
            if missing_files := [
                data_file.file_path for data_file in old_files if data_file.file_path not in present_paths
            ]:
                raise Retryable(
                    f"another writer replaced {len(missing_files)} data files of {self.name} meanwhile"
                )
            producer = change.update_snapshot(snapshot_properties=self._properties(progress))
            with producer.overwrite() as snapshot:
                for data_file in old_files:
                    snapshot.delete_data_file(data_file)
                for path in files:
                    snapshot.append_data_file(self._data_file(path))

        self._commit(swap)
        self.progress = progress

    def data_files(self) -> list[DataFile]:
        """The data files of the current snapshot."""
        return [task.file for task in self.table.scan().plan_files()]

    def expire(self, keep: int, keep_s: float) -> int:
        """Expire snapshots that are neither among the newest ones nor young; returns how many."""
        snapshots = sorted(self.table.snapshots(), key=lambda snapshot: snapshot.timestamp_ms, reverse=True)
        limit_ms = (datetime.now(UTC) - timedelta(seconds=keep_s)).timestamp() * 1000
        old_ids = [snapshot.snapshot_id for snapshot in snapshots[keep:] if snapshot.timestamp_ms < limit_ms]
        if old_ids:
            self.table.maintenance.expire_snapshots().by_ids(old_ids).commit()
        return len(old_ids)

    @property
    def name(self) -> str:
        """Namespace and name."""
        return ".".join(self.table.name())

    def _data_file(self, path: str) -> DataFile:
        """A data file with its statistics.

        pyiceberg cuts the greatest text of a column and raises the last character, which fails for U+D7FF: then texts
        are not cut. Spark states none that are longer than 4 KiB.
        """
        metadata = self.table.metadata
        try:
            return parquet_file_to_data_file(self.table.io, metadata, path)
        except UnicodeEncodeError:
            uncut_texts = {
                f"{TableProperties.METRICS_MODE_COLUMN_CONF_PREFIX}.{column.name}": "full"
                for column in metadata.schema().fields
                if isinstance(column.field_type, StringType)
            }
            uncut_metadata = metadata.model_copy(update={"properties": metadata.properties | uncut_texts})
            return parquet_file_to_data_file(self.table.io, uncut_metadata, path)

    def _take_over(self) -> None:
        for attempt in range(self._attempts):
            newest_snapshot = self._newest()
            text = None if newest_snapshot is None else _property(newest_snapshot, self._offsets)
            self.progress = TableProgress.load(text) if text is not None else TableProgress()
            try:
                with self.table.transaction() as change:
                    producer = change.update_snapshot(snapshot_properties=self._properties(self.progress))
                    with producer.fast_append():
                        pass  # a snapshot without new data
            except CommitFailedException:
                self._wait(attempt)
            else:
                return
        raise Retryable(f"other writers of {self.name} committed at each of {self._attempts} attempts")

    def _commit(self, fill: Callable[[Transaction], None]) -> None:
        for attempt in range(self._attempts):
            self.table.refresh()
            self._ensure_owner()
            try:
                with self.table.transaction() as change:
                    fill(change)
            except CommitFailedException as error:
                logger.warning(
                    "commit-conflict", table=self.name, attempt=attempt + 1, error=str(error)[:300]
                )
                self._wait(attempt)
            else:
                return
        raise Retryable(f"other writers of {self.name} committed at each of {self._attempts} attempts")

    def _wait(self, attempt: int) -> None:
        metrics.LAKE_CONFLICTS.labels(self.name).inc()
        time.sleep(backoff_s(attempt, _BACKOFF_S))
        self.table.refresh()

    def _ensure_owner(self) -> None:
        newest_snapshot = self._newest()
        if newest_snapshot is None or _property(newest_snapshot, self._writer_name) != self._writer:
            raise Fenced(f"another instance of lake writes {self.name}")

    def _newest(self) -> Snapshot | None:
        """The newest snapshot of this log, or of another one after it, which has its properties, too."""
        return next(
            (snapshot for snapshot in self._history() if _property(snapshot, self._offsets) is not None), None
        )

    def _history(self) -> Iterator[Snapshot]:
        """The snapshots that led to the current state, newest first."""
        snapshot = self.table.current_snapshot()
        while snapshot is not None:
            yield snapshot
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self.table.snapshot_by_id(parent)

    def _properties(self, progress: TableProgress) -> dict[str, str]:
        """Properties of a new snapshot: the progress of this log and of the others, and until when it is settled.

        To be called before the commit: what had its outcome then is in the table that the commit changes.
        """
        log_properties = next(
            (logs for snapshot in self._history() if (logs := _log_properties(snapshot))), {}
        )
        properties = log_properties | {self._offsets: progress.dump(), self._writer_name: self._writer}
        settled_until = self._settled_until()
        return properties if settled_until is None else properties | {self._settled_name: settled_until}


def _log_properties(snapshot: Snapshot) -> dict[str, str]:
    """The properties of a snapshot that belong to logs."""
    properties = {} if snapshot.summary is None else snapshot.summary.additional_properties
    return {name: text for name, text in properties.items() if name.startswith((OFFSETS, WRITER))}


def _property(snapshot: Snapshot, name: str) -> str | None:
    summary = snapshot.summary
    return None if summary is None else summary.additional_properties.get(name)
