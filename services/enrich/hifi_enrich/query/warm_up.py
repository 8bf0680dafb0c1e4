"""Marks the made-up events of a warm-up, and ends it when Java's JIT compiler has hardly anything left to compile."""

import contextlib
from collections.abc import Iterator
from threading import Event
from typing import Final

from pyspark.sql import SparkSession

from hifi.runtime.clock import monotonic_s
from hifi.spark.catalyst import JavaObject
from hifi_enrich.plan.udf_limits import MADE_UP
from hifi_enrich.query.query_run import QueryRun

WARM_UP_TIMEOUT_S: Final = 45.0
"""Bound on the whole warm-up, with the start of its query. After it the service starts without a warm-up."""
MAX_S: Final = 4.0
"""Bound on the time in which the query runs. With 6 s the start was later, and no event was earlier."""
RECORDS: Final = 2000
"""Records that are written before the query starts. It writes its output to the topic that it reads, so that real time
never runs out of records."""
RECORDS_PER_BATCH: Final = 200
REAL_TIME_BATCH_MS: Final = 1000
"""Length of a real-time batch. It is short, so that ending one and starting the next gets compiled, too."""
_STEADY_SHARE: Final = 0.15
"""Share of the time in which a steady JVM's compiler works."""
_WINDOW_S: Final = 1.0
_POLL_S: Final = 0.02


def run_until_steady(query: QueryRun, jvm: JavaObject, end_requested: Event) -> int:
    """Wait until the code that a query runs is compiled, at most `MAX_S` seconds, or until the query has failed.

    Args:
        query: a running query.
        jvm: the virtual machine that runs it.
        end_requested: ends the warm-up when it is set.

    Returns:
        Number of batches that the query finished.
    """
    compiler = jvm.java.lang.management.ManagementFactory.getCompilationMXBean()
    batches = 0
    start_s = window_start_s = monotonic_s()
    compiled_ms = compiler.getTotalCompilationTime()
    while query.active and not end_requested.is_set() and (now_s := monotonic_s()) - start_s < MAX_S:
        batches += query.finished_batch() is not None
        if now_s - window_start_s >= _WINDOW_S:
            previous_compiled_ms, compiled_ms = compiled_ms, compiler.getTotalCompilationTime()
            compiling_share = (compiled_ms - previous_compiled_ms) / 1000 / (now_s - window_start_s)
            window_start_s = now_s
            if compiling_share < _STEADY_SHARE and batches > 0:
                break
        end_requested.wait(_POLL_S)
    return batches


@contextlib.contextmanager
def made_up_events(spark: SparkSession) -> Iterator[None]:
    """Queries and jobs that this thread starts in the block read made-up events: they count against no pipe."""
    context = spark.sparkContext
    context.setLocalProperty(MADE_UP, "true")
    try:
        yield
    finally:
        context.setLocalProperty(MADE_UP, None)  # type: ignore[arg-type] # it removes the property
