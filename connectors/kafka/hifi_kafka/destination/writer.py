"""Write batches of events to a topic of another cluster."""

import asyncio
from collections.abc import Sequence
from typing import Final, TypeAlias

from hifi.delivery.kind import DestinationWriter, OutboundEvent, WriterContext
from hifi.kafka.security import client_options
from hifi_kafka.declaration import KafkaDestinationSettings
from hifi_kafka.destination.avro_values import AvroValues
from hifi_kafka.destination.positions import Position, PositionReader
from hifi_kafka.destination.records import DestinationRecord, destination_record
from hifi_kafka.destination.transactions import RETRIED, TransactionalPartition

FRESH: Final = b"fresh"
_Batches: TypeAlias = dict[tuple[str, int, bool], list[tuple[OutboundEvent, DestinationRecord]]]
"""Log, partition, and whether the retrier brought the events back, to the events and their records."""


class KafkaWriter(DestinationWriter):
    """Writes to one topic, with a transactional producer for each partition of the stream."""

    def __init__(self, settings: KafkaDestinationSettings, context: WriterContext) -> None:
        """Check the files of the security settings; the first write connects.

        Args:
            settings: of the destination.
            context: of the writer.

        Raises:
            Misconfigured: a file or the Avro schema cannot be used.
        """
        self._settings = settings
        client_options(settings.bootstrap, settings.security, context.pipe)
        self._context = context
        self._reader = PositionReader(settings, context.pipe)
        self._avro = (
            None if settings.avro is None else AvroValues(settings.avro, settings.topic, context.pipe)
        )
        self._partitions: dict[tuple[str, int, bool], TransactionalPartition] = {}
        """By log, partition, and whether the retrier brought the events back."""

    async def write(self, events: Sequence[OutboundEvent]) -> None:
        """Write the events of each partition in one transaction."""
        avro = None if self._avro is None else await self._avro.ready()
        batches: _Batches = {}
        for event in events:
            record = destination_record(event, self._settings, avro)
            batches.setdefault((event.log, event.partition, event.retried), []).append((event, record))
        _drop_repeated(batches)
        # Side by side: one that reads positions may wait for the open transaction of another, which its new owner ends.
        writes = (
            self._partition(log, number, retried=retried).write(batch)
            for (log, number, retried), batch in batches.items()
        )
        for failure in await asyncio.gather(*writes, return_exceptions=True):
            if failure is not None:
                raise failure

    async def close(self) -> None:
        """Close all producers and readers."""
        for partition in self._partitions.values():
            await partition.stop()
        await self._reader.stop()

    def _partition(self, log: str, number: int, *, retried: bool) -> TransactionalPartition:
        partition = self._partitions.get((log, number, retried))
        if partition is None:
            stream, pipe, destination, *_ = self._context
            owner = f"{stream};{pipe};{destination};{log};{number};".encode()
            partition = TransactionalPartition(
                self._settings, pipe, Position(owner, RETRIED if retried else FRESH), self._reader
            )
            self._partitions[log, number, retried] = partition
        return partition


def _drop_repeated(batches: _Batches) -> None:
    """Leave out retried events that are among the fresh ones, too: the two lines are written at the same time.

    A batch is written as a whole, so that what the fresh one becomes is also what the retried one has become.
    """
    for log, partition, is_retried in list(batches):
        fresh_batch = batches.get((log, partition, False))
        if is_retried and fresh_batch is not None:
            fresh_offsets = {event.offset for event, _ in fresh_batch}
            batch = batches.pop((log, partition, True))
            if kept_events := [
                (event, record) for event, record in batch if event.offset not in fresh_offsets
            ]:
                batches[log, partition, True] = kept_events
