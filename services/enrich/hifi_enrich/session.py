"""The Spark session of the process: local by default, quiet, tuned for small batches."""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from hifi.errors import Misconfigured
from hifi_enrich.settings import EnrichSettings

LOG4J: Final = Path(__file__).with_name("log4j2.properties")
_LOCAL: Final = re.compile(r"local\[(\d+)\]")

SEMANTICS: Final = {
    "spark.sql.ansi.enabled": "false",  # a cast that does not fit gives null and stops nothing
    "spark.sql.caseSensitive": "true",  # as JSON is
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.variant.allowDuplicateKeys": "true",  # the last one counts, as in most JSON parsers
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.task.maxFailures": "1",
    "spark.executor.killOnFatalError.depth": "0",  # a stack overflow on one event must not end the process
}
"""What users' SQL means depends on these."""
_FAST: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
    "spark.ui.retainedTasks": "10",
    "spark.sql.streaming.ui.enabled": "false",
    "spark.metrics.appStatusSource.enabled": "false",
    "spark.appStatusStore.diskStoreDir": "",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.streaming.pollingDelay": "5",
    "spark.sql.artifact.isolation.enabled": "false",
    "spark.python.worker.reuse": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.locality.wait": "0",
    "spark.shuffle.service.enabled": "false",
    "spark.cleaner.periodicGC.interval": "10min",
}
_JVM: Final = (
    "-Xss8m "  # expressions nest, and so do Spark's walks over them
    "-XX:+UseG1GC -XX:MaxGCPauseMillis=50 -XX:+ExitOnOutOfMemoryError "
    "-Djava.awt.headless=true -Dlog4j2.configurationFile="
)


def slots(master: str) -> int | None:
    """Tasks that a local master runs at the same time; None where the cluster decides."""
    if not master.startswith("local"):
        return None
    match = _LOCAL.fullmatch(master)
    return int(match[1]) if match else (os.cpu_count() or 1) if master == "local[*]" else 1


def choose_master(master: str, partitions: int) -> str:
    """The master to use.

    Raises:
        Misconfigured: it has fewer slots than partitions + 1; Spark would silently never read some partitions.
    """
    if not master:
        return f"local[{partitions + 1}]"
    have = slots(master)
    if have is not None and have < partitions + 1:
        raise Misconfigured(
            f"HIFI_ENRICH_MASTER={master} has {have} task slots and the stream's {partitions} partitions need "
            f"{partitions + 1}: Spark would never read some of them; use local[{partitions + 1}] or leave it empty"
        )
    return master


def jars(setting: str) -> list[Path]:
    """The connector's jars.

    Raises:
        Misconfigured: one is missing, or nothing says where they are.
    """
    if setting:
        paths = [Path(one) for one in setting.split(",") if one]
        if missing := [str(path) for path in paths if not path.is_file()]:
            raise Misconfigured(f"HIFI_SPARK_JARS names {', '.join(missing)}, which does not exist")
        return paths
    try:
        from hifi_infra.jars import spark_jars
    except ImportError:
        raise Misconfigured("set HIFI_SPARK_JARS to the jars of Spark's Kafka connector, or install hifi-infra") from None
    return spark_jars()


def start(master: str, settings: EnrichSettings, jar_paths: Sequence[Path], temp: Path) -> SparkSession:
    """Start Spark in this process. Takes some seconds."""
    cores = slots(master)
    own: Mapping[str, str] = {
        "spark.jars": ",".join(map(str, jar_paths)),
        "spark.local.dir": str(temp),
        "spark.sql.warehouse.dir": str(temp / "warehouse"),
        "spark.driver.memory": settings.enrich_driver_memory,
        "spark.driver.extraJavaOptions": f"{_JVM}{LOG4J}",
    }
    if cores is not None:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        own = {**own, "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(f"hifi-enrich-{settings.stream}")
    for name, value in {**_FAST, **own, **settings.enrich_conf, **SEMANTICS}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@contextmanager
def temp_folder(setting: str) -> Iterator[Path]:
    """A folder of this process for checkpoints and scratch files, gone at the end.

    Nothing in it is needed again (see docs/decisions/enrich-offsets.md), so memory is the right place.
    """
    memory = Path("/dev/shm")  # noqa: S108 - a fresh folder with a random name is made in it
    parent = setting or (str(memory) if os.access(memory, os.W_OK) else None)
    folder = Path(tempfile.mkdtemp(prefix="hifi-enrich-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
