"""Commits data files and progress to one Iceberg table, each in one snapshot.

Iceberg commits are optimistic: one that others were faster than fails and is made again on the newer snapshot. Before
each attempt the destination's last writer in the table must be this one. When this instance takes the table over, it
commits a snapshot without data, so that a commit of an earlier writer, which may still be under way, fails and is not
made again. Progress and writer are those of one destination in one log of the stream: other destinations, and services
of other logs, write the table at the same time.
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
from hifi_iceberg.destination.progress import (
    OFFSETS,
    SETTLED_UNTIL,
    WRITER,
    TableOwner,
    TableProgress,
    progress_at,
)

_BACKOFF_S: Final = (0.05, 0.2, 0.5, 1.0, 2.0)

logger = log.get(__name__)


class _SingleAttempt(Transaction):
    """A transaction that fails if others were faster.

    One of pyiceberg would put its snapshot, with the properties that it has, on top of theirs. It first looks whether
    the commit is in the table although the catalog reported a failure: then it is made.
    """

    def _rebuild_snapshot_updates(self) -> None:
        raise CommitFailedException("others have committed since the table was read")


class TableCommits:
    """Commits of one destination to its table, as long as no other instance takes it over."""

    def __init__(
        self,
        table: Table,
        owner: TableOwner,
        writer: str,
        attempts: int,
        settled_until: Callable[[], str | None] = lambda: None,
        topic: str = "",
    ) -> None:
        """Take the table over.

        Args:
            table: open.
            owner: the destination, and the log of the stream.
            writer: a name that was never used before.
            attempts: to commit while others do.
            settled_until: returns the time before which every acknowledged event has its outcome, so that its row, if
                it has any, is in the table; None: it is unknown, or not asked for.
            topic: id of the topic `enriched`, whose offsets are the progress; empty: unknown.

        Raises:
            Retryable: others committed at each attempt.
        """
        self.table: Final = table
        self._owner = owner
        self._writer = writer
        self._attempts = attempts
        self._settled_until = settled_until
        self._settled_name = SETTLED_UNTIL + owner.log
        self._topic = topic
        self.progress = TableProgress()
        self._take_over()

    def progress_at(self, offsets: Mapping[int, int]) -> TableProgress:
        """The progress that the table had when the query committed these offsets of `enriched`."""
        progress_texts = (self._owner.progress_text(_properties(snapshot)) for snapshot in self._history())
        return progress_at(progress_texts, offsets, self._topic)

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

    def require_ownership(self) -> None:
        """Read the table again.

        Raises:
            Fenced: another instance writes it.
        """
        self.table.refresh()
        properties = self._newest_properties()
        if not self._owner.is_written_by(self._writer, properties):
            raise Fenced(f"another instance of lake writes {self.name}")

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
            text = self._owner.progress_text(self._newest_properties())
            self.progress = TableProgress() if text is None else TableProgress.load(text, self._topic)
            try:
                with _SingleAttempt(self.table) as change:
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
            self.require_ownership()
            try:
                with _SingleAttempt(self.table) as change:
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

    def _newest_properties(self) -> Mapping[str, str]:
        """The properties of the newest snapshot of this log, or of another one after it, which has them, too."""
        history = (_properties(snapshot) for snapshot in self._history())
        return next((properties for properties in history if OFFSETS + self._owner.log in properties), {})

    def _history(self) -> Iterator[Snapshot]:
        """The snapshots that led to the current state, newest first."""
        snapshot = self.table.current_snapshot()
        while snapshot is not None:
            yield snapshot
            parent = snapshot.parent_snapshot_id
            snapshot = None if parent is None else self.table.snapshot_by_id(parent)

    def _properties(self, progress: TableProgress) -> dict[str, str]:
        """Properties of a new snapshot: the progress of this owner and of all others, and until when it is settled.

        To be called before the commit: what had its outcome then is in the table that the commit changes.
        """
        log_properties = next(
            (logs for snapshot in self._history() if (logs := _log_properties(snapshot))), {}
        )
        properties = log_properties | self._owner.properties(progress, self._writer, self._topic)
        settled_until = self._settled_until()
        return properties if settled_until is None else properties | {self._settled_name: settled_until}


def _log_properties(snapshot: Snapshot) -> dict[str, str]:
    """The properties of a snapshot that belong to logs, and to destinations in them."""
    return {name: text for name, text in _properties(snapshot).items() if name.startswith((OFFSETS, WRITER))}


def _properties(snapshot: Snapshot) -> Mapping[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties
