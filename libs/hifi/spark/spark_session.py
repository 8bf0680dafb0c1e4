"""Starts and stops the Spark session of a process: quiet, tuned for small batches, with hifi's SQL semantics."""

import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import SparkSession

from hifi.runtime.errors import HifiError
from hifi.runtime.process.user_code import public_variables
from hifi.spark.java_classes import load_functions

LOG4J: Final = Path(__file__).with_name("log4j2.properties")
_SCRATCH_PREFIX: Final = "hifi-enrich-"
_LOCAL: Final = re.compile(r"local\[(\d+)\]")

SEMANTICS: Final = {
    "spark.sql.ansi.enabled": "false",  # a failed cast gives null instead of an error
    # It would change where a sum overflows: (n + a) + b would be n + (a + b).
    "spark.sql.optimizer.excludedRules": "org.apache.spark.sql.catalyst.optimizer.ReorderAssociativeOperator",
    "spark.sql.caseSensitive": "true",  # as JSON is
    "spark.sql.variable.substitute": "false",  # `${env:…}` in an expression would read a variable
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.variant.allowDuplicateKeys": "true",  # the last one counts, as in most JSON parsers
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.task.maxFailures": "1",
    "spark.executor.killOnFatalError.depth": "0",  # a stack overflow on one event must not end the process
}
"""Settings on which the meaning of users' SQL depends. They cannot be overridden."""
INTERPRETED: Final = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
}
"""Evaluates expressions without generating Java source for them."""
GENERATED: Final = {
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.codegen.wholeStage": "true",
}
"""Generates Java source for expressions; Spark's default."""
_TUNING: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
    "spark.ui.retainedTasks": "10",
    "spark.sql.streaming.ui.enabled": "false",
    "spark.metrics.appStatusSource.enabled": "false",
    "spark.appStatusStore.diskStoreDir": "",
    # Spark's default is 64 KiB, up to which Java can load a method. With a longer one, projections run one by one.
    "spark.sql.codegen.hugeMethodLimit": "32000",
    "spark.sql.subexpressionElimination.enabled": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
    # The default file manager forks `chmod` for every file: 40 ms twice a batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.numRecentProgressUpdates": "10",
    "spark.sql.streaming.pollingDelay": "20",
    "spark.sql.streaming.realTimeMode.minBatchDuration": "1000",  # for the warm-up of enrich
    "spark.sql.artifact.isolation.enabled": "false",
    "spark.python.worker.reuse": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.locality.wait": "0",
    "spark.shuffle.service.enabled": "false",
    "spark.cleaner.periodicGC.interval": "10min",
}
_COMPILE_HUGE_METHODS: Final = "-XX:-DontCompileHugeMethods"
"""Java compiles methods above 8,000 bytes too: that of a real-time plan with five lookups has 12,000."""
_EXECUTOR_OPTIONS: Final = "spark.executor.extraJavaOptions"
JVM_OPTIONS: Final = (
    "-Xss8m "  # expressions nest deeply, and Spark walks them recursively
    "-XX:+UseSerialGC "  # with few cores its pauses are as short as those of other collectors
    "-XX:TieredStopAtLevel=1 "  # see the setting enrich_compile
    f"{_COMPILE_HUGE_METHODS} "
    "-XX:+ExitOnOutOfMemoryError -Djava.awt.headless=true "
    f"-Dlog4j2.configurationFile={LOG4J}"
)


def task_slots(master: str) -> int | None:
    """Number of tasks that a local master runs at the same time; None where a cluster decides."""
    if not master.startswith("local"):
        return None
    match = _LOCAL.fullmatch(master)
    return int(match[1]) if match else (os.cpu_count() or 1) if master == "local[*]" else 1


def executor_options(conf: Mapping[str, str]) -> str:
    """Options of the JVMs of a cluster's executors: those of `conf`, and what generated code needs.

    Args:
        conf: Spark settings.
    """
    return f"{_COMPILE_HUGE_METHODS} {conf.get(_EXECUTOR_OPTIONS, '')}".strip()


def start_spark(
    master: str,
    app_name: str,
    scratch: Path,
    conf: Mapping[str, str],
    java_options: str = "",
    secret: str = "",
) -> SparkSession:
    """Start Spark in this process. Blocks for some seconds.

    Args:
        master: Spark's master, such as `local[4]`.
        app_name: name of the application in Spark's logs.
        scratch: folder for Spark's temporary files.
        conf: further Spark settings; `SEMANTICS` take precedence.
        java_options: further options of the driver's JVM, after `JVM_OPTIONS`.
        secret: of a Spark cluster; with it Spark's processes authenticate each other and encrypt. Empty: neither.
    """
    settings = {
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"{JVM_OPTIONS} {java_options}".strip(),
    }
    if task_slots(master) is not None:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName(app_name)
    executor_settings = {_EXECUTOR_OPTIONS: executor_options(conf)}
    for name, value in {**_TUNING, **settings, **conf, **executor_settings, **SEMANTICS}.items():
        builder = builder.config(name, value)
    if secret:
        # In a file: the settings of a session become arguments, which a process list shows.
        folder = scratch / "conf"
        folder.mkdir(mode=0o700, exist_ok=True)
        (folder / "spark-defaults.conf").write_text(
            "spark.authenticate true\nspark.network.crypto.enabled true\n"
            f"spark.authenticate.secret {secret}\n"
        )
        os.environ["SPARK_CONF_DIR"] = str(folder)
    with _public_variables():
        spark = builder.getOrCreate()
    load_functions(spark)
    return spark


@contextmanager
def _public_variables() -> Iterator[None]:
    """Hide all variables but those that Spark needs, since the JVM and the workers that run UDFs inherit them."""
    public_names = public_variables()
    hidden_variables = {name: value for name, value in os.environ.items() if name not in public_names}
    for name in hidden_variables:
        del os.environ[name]
    try:
        yield
    finally:
        os.environ.update(hidden_variables)


class SparkExited(HifiError):
    """Spark's JVM has exited, or Spark has stopped in it: this process cannot continue, a new one can."""


def has_exited(spark: SparkSession) -> bool:
    """Whether Spark's JVM has exited, so that nothing works in this process any more."""
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - the only access to the process
    return gateway.proc is not None and gateway.proc.poll() is not None


def raise_if_exited(spark: SparkSession) -> None:
    """Raise SparkExited if Spark's JVM has exited."""
    if has_exited(spark):
        raise SparkExited("Spark's JVM has exited; the process must be restarted")


def raise_if_stopped(spark: SparkSession) -> None:
    """Raise SparkExited if Spark's JVM has exited, or Spark has stopped in it, as by its cluster. Blocks: asks the JVM.

    Raises:
        SparkExited: nothing works in this process any more.
    """
    raise_if_exited(spark)
    context: Any = spark.sparkContext._jsc  # noqa: SLF001 - PySpark does not notice that its context was stopped
    if context is None or context.sc().isStopped():
        raise SparkExited("Spark has stopped in its JVM; the process must be restarted")


def root_cause(error: Exception) -> str:
    """The first line of what went wrong: that an exception of Java has is of the call, not of its cause."""
    cause = getattr(error, "java_exception", None)
    while cause is not None and cause.getCause() is not None:
        cause = cause.getCause()
    return str(error if cause is None else cause.getMessage()).partition("\n")[0]


def stop_spark(spark: SparkSession, timeout_s: float = 10) -> None:
    """Stop Spark and its JVM.

    Raises:
        subprocess.TimeoutExpired: the JVM has not exited within `timeout_s` seconds.
    """
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001 - pyspark leaves the JVM running
    spark.stop()
    gateway.shutdown()
    if gateway.proc is not None:
        gateway.proc.stdin.close()
        gateway.proc.wait(timeout_s)
    SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001 - so that a later start launches a new one


@contextmanager
def local_spark() -> Iterator[SparkSession]:
    """A small local session without Kafka, for checks. Uses the active session where there is one."""
    active_session = SparkSession.getActiveSession()
    if active_session is not None:
        yield active_session
        return
    with scratch_folder() as scratch:
        spark = start_spark("local[1]", "hifi-check", scratch, INTERPRETED)
        try:
            yield spark
        finally:
            stop_spark(spark)


@contextmanager
def scratch_folder(parent: str = "") -> Iterator[Path]:
    """A folder of this process for checkpoints and temporary files, deleted at the end.

    Folders that killed processes left behind are deleted too. Nothing in the folder is needed after a restart (see
    docs/decisions/enrich-offsets.md), so the default is memory.

    Args:
        parent: the folder in which to make it; empty: /dev/shm, or the system's temporary folder.
    """
    memory = Path("/dev/shm")  # noqa: S108 - a fresh folder with a random name is made in it
    parent_folder = Path(parent or (memory if os.access(memory, os.W_OK) else tempfile.gettempdir()))
    for abandoned_folder in parent_folder.glob(f"{_SCRATCH_PREFIX}*-*"):
        owner = abandoned_folder.name.removeprefix(_SCRATCH_PREFIX).partition("-")[0]
        if owner.isdigit() and Path("/proc/self").exists() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(abandoned_folder, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{_SCRATCH_PREFIX}{os.getpid()}-", dir=parent_folder))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
