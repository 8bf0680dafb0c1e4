"""Executors of a Spark cluster: only the instance that runs the query holds any.

A standalone cluster gives all free cores to the application that asks first. A standby that kept them would leave the
instance that leads without any, and its query would wait for ever. On Kubernetes each application has the number of
executors that its settings say; those of a standby would be idle.
"""

from typing import Any, Final

from pyspark.sql import SparkSession

from hifi.runtime import log
from hifi.spark.spark_session import task_slots

_ALL: Final = 2**31 - 1

logger = log.get(__name__)


class Executors:
    """Claims and releases the executors of a session. Does nothing in local mode or with dynamic allocation.

    Args:
        spark: the session, which has claimed executors since it started.
        master: Spark's master.
    """

    def __init__(self, spark: SparkSession, master: str) -> None:
        conf = spark.sparkContext.getConf()
        is_dynamic = conf.get("spark.dynamicAllocation.enabled", "false") == "true"
        self._managed = task_slots(master) is None and not is_dynamic
        self._most = int(conf.get("spark.executor.instances") or _ALL)
        self._spark = spark
        self.claimed = True
        """Whether the session has executors, or gets them when the cluster has free cores."""

    def claim(self) -> None:
        """Ask for as many executors as the settings say, or else all. Blocks until the cluster has the request."""
        if not self.claimed:
            self._request(self._most)
            self.claimed = True
            logger.info("executors-claimed")

    def release(self) -> None:
        """Give all executors back. Blocks until they have been asked to exit."""
        if self._managed and self.claimed:
            self._request(0)
            context = self._context
            context.killExecutors(context.getExecutorIds())
            self.claimed = False
            logger.info("executors-released")

    def _request(self, executor_count: int) -> None:
        jvm: Any = self._spark._jvm  # noqa: SLF001 - PySpark has no API for executors
        empty_map = getattr(getattr(jvm.scala.collection.immutable, "Map$"), "MODULE$").empty()
        self._context.requestTotalExecutors(executor_count, 0, empty_map)

    @property
    def _context(self) -> Any:
        return self._spark._jsparkSession.sparkContext()  # noqa: SLF001
