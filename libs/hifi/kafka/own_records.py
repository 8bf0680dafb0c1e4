"""Fetched records of hifi's own topics: one that aiokafka cannot read stops neither those behind it nor their reader.

Other programs may write to these topics, and Kafka takes header names that are not UTF-8, at which aiokafka raises.
Records are read as aiokafka reads them until it raises; what is left of the fetch is read with care then. A record with
such a header name keeps key and value; it is no event, because its first header is `hifi_refused`, with the reason, and
it has no header `hifi`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from types import FunctionType, MethodType
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka.consumer.fetcher import Fetcher, PartitionRecords
from aiokafka.consumer.subscription_state import Assignment
from aiokafka.record.default_records import DefaultRecordBatch
from aiokafka.record.memory_records import MemoryRecords

from aiokafka_cooperative import start_with_classes
from hifi.kafka.foreign_records import (
    FetchedBatches,
    ForeignRecords,
    UnparsedRecord,
    UnreadRecord,
    with_ascii_names,
)
from hifi.record.headers import IDENTITY
from hifi.record.refusal import refusal_header
from hifi.runtime import log

UNPACKED_BYTES: Final = 64 * 1024 * 1024
"""Largest size of a compressed batch once it is unpacked, where records are read with care, bytes."""

logger = log.get(__name__)


class KeptBatches:
    """aiokafka's MemoryRecords, and the bytes that it reads."""

    def __init__(self, fetched: bytes) -> None:
        """Read nothing yet; `fetched` are whole batches, of which the last one may be cut off."""
        self.fetched: Final = fetched
        records = MemoryRecords(fetched)
        self.size_in_bytes: Callable[[], int] = records.size_in_bytes
        self.has_next: Callable[[], bool] = records.has_next
        self.next_batch: Callable[[], Any] = records.next_batch


class OwnRecords(ForeignRecords):
    """The records of one partition of a fetch; `records` are KeptBatches. Its iterator raises CorruptBatch only."""

    _records: Any
    _aborted_transactions: list[tuple[int, int]]
    _aborted_producers: set[int]

    def _unpack_records(self) -> Iterator[Any]:
        first_offset, aborted_transactions = self.next_fetch_offset, list(self._aborted_transactions)
        try:
            yield from PartitionRecords._unpack_records(self)  # noqa: SLF001 - not that of ForeignRecords
        except Exception as error:  # noqa: BLE001 - whatever the bytes cause
            logger.warning(
                "fetch-read-with-care",
                topic=self._tp.topic,
                partition=self._tp.partition,
                offset=self.next_fetch_offset,
                error=repr(error),
            )
        else:
            return
        self._records = FetchedBatches(self._records.fetched, max_bytes=UNPACKED_BYTES)
        self._aborted_transactions, self._aborted_producers = aborted_transactions, set()
        yield from self._unpack_with_care(first_offset)

    def _unparsed_record(self, offset: int, timestamp: int, unparsed: UnparsedRecord) -> UnreadRecord:
        record: Any = super()._unparsed_record(offset, timestamp, unparsed)
        try:
            [named] = DefaultRecordBatch(with_ascii_names(unparsed.alone))
        except Exception:  # noqa: BLE001 - it is malformed, too
            named = replace(record, headers=())
        headers = (*record.headers, *(header for header in named.headers if header[0] != IDENTITY))
        unread: UnreadRecord = replace(
            record, timestamp=named.timestamp, key=named.key, value=named.value, headers=headers
        )
        return unread

    def _unreadable(self, offset: int, timestamp: int, reason: str, detail: str) -> UnreadRecord:
        logger.error(
            "record-unreadable",
            topic=self._tp.topic,
            partition=self._tp.partition,
            offset=offset,
            error=detail,
        )
        record: Any = super()._unreadable(offset, timestamp, reason, detail)
        refused_record: UnreadRecord = replace(record, headers=(refusal_header(reason, detail),))
        return refused_record


class RecordFetcher(Fetcher):  # type: ignore[misc]
    """A Fetcher whose records are OwnRecords, or those of the given classes in place of aiokafka's.

    Args:
        arguments: of Fetcher.
        records_class: takes what PartitionRecords takes.
        batches_class: takes what MemoryRecords takes.
        options: of Fetcher.
    """

    def __init__(
        self,
        *arguments: Any,
        records_class: type[PartitionRecords] = OwnRecords,
        batches_class: Callable[[bytes], Any] = KeptBatches,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        function: Any = Fetcher._proc_fetch_request  # noqa: SLF001 - it has no parameter for the classes
        replacements: Mapping[str, Any] = {"MemoryRecords": batches_class, "PartitionRecords": records_class}
        process = FunctionType(function.__code__, {**function.__globals__, **replacements})
        self._process: Any = MethodType(process, self)

    async def _proc_fetch_request(self, assignment: Assignment, node_id: int, request: Any) -> Any:
        return await self._process(assignment, node_id, request)


class RecordConsumer(AIOKafkaConsumer):  # type: ignore[misc]
    """An AIOKafkaConsumer with a RecordFetcher, or another one of its kind.

    Args:
        arguments: of AIOKafkaConsumer.
        fetcher_class: a subclass of RecordFetcher, or a function with its parameters that makes one.
        options: of AIOKafkaConsumer.
    """

    def __init__(
        self, *arguments: Any, fetcher_class: Callable[..., Fetcher] = RecordFetcher, **options: Any
    ) -> None:
        super().__init__(*arguments, **options)
        self._fetcher_class = fetcher_class

    async def start(self) -> None:
        """Connect."""
        await start_with_classes({"Fetcher": self._fetcher_class})(self)
