"""Keeps the query running while this instance leads, and starts it again after a failure."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from aiokafka.errors import KafkaError
from pyspark.sql import DataFrame, SparkSession

from hifi.kafka.group_offsets import GroupOffsets, StartOffsets
from hifi.kafka.leader_election import LeaderElection
from hifi.runtime import log, metrics
from hifi.runtime.backoff import backoff_s
from hifi.runtime.errors import Retryable
from hifi.runtime.service import Service
from hifi.spark.spark_session import raise_if_exited
from hifi_lake.batch.batch_size import BatchSize
from hifi_lake.batch.processor import BatchProcessor
from hifi_lake.query.lake_query import LakeQuery
from hifi_lake.settings import LakeSettings
from hifi_lake.stream import LakeStream

_CONDITION: Final = "query"
_BACKOFF_S: Final = (0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_POLL_S: Final = 0.1

logger = log.get(__name__)


class QuerySupervisor:
    """Runs the query again and again while this instance leads."""

    def __init__(
        self,
        service: Service,
        settings: LakeSettings,
        spark: SparkSession,
        stream: LakeStream,
        election: LeaderElection,
        partitions: int,
        scratch: Path,
    ) -> None:
        """Run nothing yet.

        Args:
            service: that runs.
            settings: of the service.
            spark: session.
            stream: for pipes, receipts and offsets.
            election: not started.
            partitions: of the stream.
            scratch: folder for temporary files.
        """
        self._service = service
        self._settings = settings
        self._spark = spark
        self._stream = stream
        self._election = election
        self._partitions = partitions
        self._scratch = scratch
        self._size = BatchSize(settings.lake_max_offsets_per_commit, settings.lake_interval_s)
        self._batch_records = 0
        """Number of records of the last batch that was begun."""
        self._run_count = 0
        self._finished_batches = 0
        """Number of finished batches of all runs."""

    async def run(self) -> None:
        """Run until the service stops.

        Raises:
            SparkExited: Spark's JVM has exited.
        """
        self._service.health.block(_CONDITION, "waiting for the group that elects the leader")
        self._election.start()
        try:
            await self._service.unless_stopped(self._election.decided.wait())
            while not self._service.stopping.is_set():
                if self._election.leading.is_set():
                    await self._lead()
                else:
                    self._service.health.unblock(_CONDITION)
                    self._service.health.state = "standby"
                    await self._service.unless_stopped(self._election.leading.wait())
        finally:
            await self._election.stop()

    def _leading(self) -> bool:
        return self._election.leading.is_set() and not self._service.stopping.is_set()

    async def _lead(self) -> None:
        self._election.query_stopped.clear()
        failures = 0
        try:
            while self._leading():
                previous_finished = self._finished_batches
                error = await self._run_once()
                raise_if_exited(self._spark)
                failures = 0 if self._finished_batches > previous_finished else failures
                if error is not None and self._leading():
                    metrics.LAKE_RESTARTS.inc()
                    logger.error("query-failed", error=error[:2000], failures=failures + 1)
                    if self._size.reduce(error, self._batch_records):
                        logger.warning("batches-reduced", records=self._size.records)
                    self._service.health.block(
                        _CONDITION, f"the query failed and is started again: {error[:300]}"
                    )
                    await self._pause(backoff_s(failures, _BACKOFF_S))
                    failures += 1
        finally:
            self._election.query_stopped.set()

    async def _run_once(self) -> str | None:
        """Run the query until it fails or must stop; returns its error, None if it was stopped."""
        topics = self._settings.topics
        offsets = GroupOffsets(
            self._settings.kafka,
            self._settings.instance,
            topics.group("lake"),
            topics.enriched,
            self._partitions,
        )
        try:
            async with offsets:
                return await self._run_query(offsets, await offsets.start())
        except (KafkaError, OSError, TimeoutError, Retryable) as error:
            return repr(error)

    async def _run_query(self, offsets: GroupOffsets, start: StartOffsets) -> str | None:
        self._run_count += 1
        records_per_batch = self._size.records
        processor = BatchProcessor(
            self._spark, self._settings, self._settings.topics, self._stream, self._scratch
        )

        def handle_batch(records: DataFrame, batch_start: StartOffsets, batch_end: Mapping[int, int]) -> None:
            self._batch_records = sum(
                end - batch_start.offsets.get(partition, end) for partition, end in batch_end.items()
            )
            processor.process(records, batch_start, batch_end, offsets)
            self._finished_batches += 1
            self._size.finish(self._batch_records, records_per_batch)
            processor.maintain()

        checkpoint = self._scratch / f"checkpoint-{self._run_count}"
        try:
            query = await asyncio.to_thread(
                LakeQuery,
                self._spark,
                self._settings,
                self._size,
                self._settings.topics.enriched,
                start,
                checkpoint,
                handle_batch,
            )
        except Exception as error:  # noqa: BLE001 - Spark's errors, and any other that the end of the JVM causes
            return str(error)
        self._service.health.unblock(_CONDITION)
        self._service.health.state = "running"
        logger.info(
            "query-started", offsets={str(partition): offset for partition, offset in start.offsets.items()}
        )
        try:
            while (
                self._leading()
                and self._size.records == records_per_batch
                and await asyncio.to_thread(lambda: query.active)
            ):
                await self._pause(_POLL_S)
            await self._wait_idle(query)
            return await asyncio.to_thread(query.error)
        except Exception as error:  # noqa: BLE001 - as above
            return str(error)
        finally:
            raise_if_exited(self._spark)
            await asyncio.to_thread(query.stop)

    async def _wait_idle(self, query: LakeQuery) -> None:
        """Let the running batch end, within the time to drain; not after a lost election."""
        deadline_s = asyncio.get_running_loop().time() + max(1.0, self._settings.drain_s - 8)
        while self._election.leading.is_set() and asyncio.get_running_loop().time() < deadline_s:
            if await asyncio.to_thread(lambda: query.idle or not query.active):
                return
            await asyncio.sleep(_POLL_S)

    async def _pause(self, seconds: float) -> None:
        """Wait, at most while this instance leads."""
        stop_task = asyncio.ensure_future(self._service.stopping.wait())
        loss_task = asyncio.ensure_future(self._election.not_leading.wait())
        try:
            await asyncio.wait({stop_task, loss_task}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop_task.cancel()
            loss_task.cancel()
