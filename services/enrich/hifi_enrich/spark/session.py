"""The Spark session of the process: local by default, quiet, tuned for small batches."""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from hifi.errors import Misconfigured
from hifi_enrich import archive
from hifi_enrich.settings import EnrichSettings

LOG4J: Final = Path(__file__).with_name("log4j2.properties")
_FOLDER: Final = "hifi-enrich-"
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
    "spark.sql.codegen.hugeMethodLimit": "8000",  # Java never compiles a longer one: then a projection at a time
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # The default one forks `chmod` for every file: 40 ms twice a batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.streaming.pollingDelay": "20",
    "spark.sql.artifact.isolation.enabled": "false",
    "spark.python.worker.reuse": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.locality.wait": "0",
    "spark.shuffle.service.enabled": "false",
    "spark.cleaner.periodicGC.interval": "10min",
}
JVM: Final = (
    "-Xss8m "  # expressions nest, and so do Spark's walks over them
    "-XX:+UseSerialGC "  # on a few cores its pauses are as short as others', and it takes no cores of its own
    "-XX:TieredStopAtLevel=1 "  # see the setting enrich_compile
    "-XX:+ExitOnOutOfMemoryError -Djava.awt.headless=true "
    f"-Dlog4j2.configurationFile={LOG4J}"
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
        from hifi_infra.java.jars import spark_jars
    except ImportError:
        raise Misconfigured(
            "set HIFI_SPARK_JARS to the jars of Spark's Kafka connector, or install hifi-infra"
        ) from None
    return spark_jars()


def start(
    master: str, settings: EnrichSettings, jar_paths: Sequence[Path], temp: Path, java_options: str = ""
) -> SparkSession:
    """Start Spark in this process. Takes some seconds."""
    cores = slots(master)
    shared = archive.path(JVM, jar_paths)
    if not java_options and shared.exists():
        java_options = f"-XX:SharedArchiveFile={shared} {archive.QUIET}"
    if settings.enrich_compile == "throughput":
        java_options += " -XX:TieredStopAtLevel=4"  # the last one counts
    own: Mapping[str, str] = {
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jar_paths)),
        "spark.local.dir": str(temp),
        "spark.sql.warehouse.dir": str(temp / "warehouse"),
        "spark.driver.memory": settings.enrich_driver_memory,
        "spark.driver.extraJavaOptions": f"{JVM} {java_options}".strip(),
    }
    if cores is not None:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        own = {**own, "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    else:
        own = {**own, "spark.jars": ",".join(map(str, jar_paths))}
    if settings.enrich_trigger == "micro-batch":
        # Generating the plan's source anew in every task of every batch costs more than it saves; in real time a task
        # lives for half a minute.
        own = {
            **own,
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.codegen.wholeStage": "false",
        }
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(f"hifi-enrich-{settings.stream}")
    for name, value in {**_FAST, **own, **settings.enrich_conf, **SEMANTICS}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


@contextmanager
def local() -> Iterator[SparkSession]:
    """A small session without Kafka, for checks; ended with the block unless there was one before."""
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    with temp_folder("") as temp:
        spark = start("local[1]", EnrichSettings(), [], temp)
        try:
            yield spark
        finally:
            stop(spark)


def stop(spark: SparkSession, timeout_s: float = 10) -> None:
    """End Spark and its JVM."""
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - pyspark leaves the JVM running
    spark.stop()
    gateway.shutdown()
    if gateway.proc is not None:
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout_s)
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - so that a later start launches a new one


@contextmanager
def temp_folder(setting: str) -> Iterator[Path]:
    """A folder of this process for checkpoints and scratch files, gone at the end.

    Nothing in it is needed again (see docs/decisions/enrich-offsets.md), so memory is the right place. What killed
    processes left behind goes too.
    """
    memory = Path("/dev/shm")  # noqa: S108 - a fresh folder with a random name is made in it
    parent = Path(setting or (memory if os.access(memory, os.W_OK) else tempfile.gettempdir()))
    for left in parent.glob(f"{_FOLDER}*-*"):
        owner = left.name.removeprefix(_FOLDER).partition("-")[0]
        if owner.isdigit() and Path("/proc/self").exists() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(left, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{_FOLDER}{os.getpid()}-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
