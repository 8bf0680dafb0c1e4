"""Write batches of events as objects, one for each partition and hour of a batch."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from hifi.delivery.kind import DestinationWriter, OutboundEvent, WriterContext
from hifi.runtime.clock import MICROSECONDS
from hifi.runtime.errors import Misconfigured
from hifi_objects.declaration import ObjectsSettings
from hifi_objects.destination.folder_store import FolderStore
from hifi_objects.destination.formats import Ndjson, ObjectFormat
from hifi_objects.destination.object_log import ObjectLog
from hifi_objects.destination.rows import Row, accepted_time, row
from hifi_objects.destination.s3_store import BucketStore
from hifi_objects.destination.store import ObjectStore

MOST_LOGS: Final = 256
"""Logs, partitions and hours whose offsets are kept in memory; those of others are read again."""
_HOUR_US: Final = 3600 * MICROSECONDS


class ObjectsWriter(DestinationWriter):
    """Writes to one folder or bucket."""

    def __init__(self, settings: ObjectsSettings, context: WriterContext) -> None:
        """Read the secrets; the first write opens the folder or bucket.

        Args:
            settings: of the destination.
            context: of the writer.

        Raises:
            Misconfigured: a secret is missing, or Parquet is not installed.
        """
        self._columns = settings.columns
        self._format = _format(settings)
        self._extension = settings.format
        self._store: ObjectStore
        if settings.s3 is not None:
            self._store = BucketStore(settings.s3, context.timeout_s, context.pipe)
        else:
            assert settings.folder is not None
            self._store = FolderStore(settings.folder)
        self._context = context
        self._logs: OrderedDict[str, ObjectLog] = OrderedDict()

    async def write(self, events: Sequence[OutboundEvent]) -> None:
        """Write the events of each log, partition and hour as one object."""
        batches: dict[tuple[str, int, int], list[Row]] = {}
        for event in events:
            log_hour = event.log, event.partition, event.accepted_us // _HOUR_US
            batches.setdefault(log_hour, []).append(row(event, self._columns))
        writes = (self._log(self._path(*log_hour)).append(rows) for log_hour, rows in batches.items())
        for failure in await asyncio.gather(*writes, return_exceptions=True):
            if failure is not None:
                raise failure

    def _path(self, log: str, partition: int, hour: int) -> str:
        """The path of the objects of a log, partition and hour since 1970 UTC, up to their number."""
        context, hour_start = self._context, accepted_time(hour * _HOUR_US)
        folder = f"pipe={context.pipe}/date={hour_start:%Y-%m-%d}/hour={hour_start:%H}"
        return f"{folder}/{context.stream}.{context.destination}.{log}.{partition:04d}"

    def _log(self, path: str) -> ObjectLog:
        object_log = self._logs.get(path)
        if object_log is None:
            object_log = self._logs[path] = ObjectLog(self._store, self._format, path, self._extension)
            if len(self._logs) > MOST_LOGS:
                self._logs.popitem(last=False)
        self._logs.move_to_end(path)
        return object_log


def _format(settings: ObjectsSettings) -> ObjectFormat:
    if settings.format != "parquet":
        return Ndjson(compressed=settings.format == "ndjson.gz")
    try:
        from hifi_objects.destination.parquet import Parquet
    except ImportError:
        raise Misconfigured(
            "the format parquet needs the package pyarrow beside egest; install hifi-egest[parquet]"
        ) from None
    return Parquet(settings.columns)
