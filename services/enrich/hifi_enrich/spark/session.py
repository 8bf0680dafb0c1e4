"""The Spark session of enrich: its master, the Kafka connector's jars, and the settings of its workload."""

import os
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from hifi.kafka.security import security_of
from hifi.pipe.model import QueryTrigger, Trigger
from hifi.runtime.errors import Misconfigured
from hifi.spark.catalyst import ALWAYS, CODE_GENERATION
from hifi.spark.jars import installed_jars
from hifi.spark.spark_session import GENERATED, INTERPRETED, JVM_OPTIONS, start_spark, task_slots
from hifi_enrich.settings import EnrichSettings
from hifi_enrich.spark.class_archive import archive_options, archive_path


def resolve_master(master: str, partitions: int, trigger: Trigger) -> str:
    """The Spark master to use: the given one, or a local one with a slot for each partition and a spare one.

    Args:
        master: the setting; empty: choose one.
        partitions: of the stream.
        trigger: the setting.

    Raises:
        Misconfigured: with the real-time trigger a local master has fewer slots than partitions + 1. Each partition
            keeps a slot for the whole batch, and Spark never reads partitions that get none, without an error.
    """
    if not master:
        return f"local[{partitions + 1}]"
    slots = task_slots(master)
    if trigger == "real-time" and slots is not None and slots < partitions + 1:
        raise Misconfigured(
            f"HIFI_ENRICH_MASTER={master} has {slots} task slots and the stream's {partitions} partitions need "
            f"{partitions + 1} with the real-time trigger, or Spark would never read some of them: use "
            f"local[{partitions + 1}], or leave the setting empty"
        )
    return master


def choose_trigger(setting: Trigger, master: str, partitions: int, *, has_udf: bool) -> QueryTrigger:
    """The trigger of the next query. On a cluster, whose slots are not known, `auto` is micro-batch.

    Args:
        setting: the setting; anything but `auto` decides.
        master: as returned by `resolve_master`.
        partitions: of the stream.
        has_udf: whether a pipe of the plan has a UDF.
    """
    if setting != "auto":
        return setting
    has_slots = (task_slots(master) or 0) >= partitions + 1
    return "real-time" if has_slots and not has_udf else "micro-batch"


def evaluation_conf(trigger: QueryTrigger, *, local: bool) -> dict[str, str]:
    """Spark settings of a query.

    In real time, where a task runs for half a minute, the whole plan becomes one generated method. Micro-batches call
    functions whose code stays: for the remaining plan, code would be generated again in every task. Executors of a
    cluster generate the code of the functions themselves, which needs the setting; they must not interpret them, since
    Spark then fails on null arrays.

    Args:
        trigger: of the query.
        local: whether tasks run in the session's own process.
    """
    if trigger == "real-time":
        return GENERATED
    return INTERPRETED if local else {**INTERPRETED, CODE_GENERATION: ALWAYS}


def connector_jars(setting: str) -> list[Path]:
    """The jars of Spark's Kafka connector.

    Args:
        setting: paths separated by commas; empty: the jars that `hifi_infra.java.jars` installed.

    Raises:
        Misconfigured: a jar is missing.
    """
    if not setting:
        return installed_jars("spark")
    paths = [Path(text) for text in setting.split(",") if text]
    if missing_paths := [str(path) for path in paths if not path.is_file()]:
        raise Misconfigured(
            f"HIFI_ENRICH_SPARK_JARS names files that do not exist: {', '.join(missing_paths)}"
        )
    return paths


def start_session(
    master: str, settings: EnrichSettings, jars: Sequence[Path], scratch: Path, java_options: str = ""
) -> SparkSession:
    """Start Spark in this process. Blocks for some seconds.

    Args:
        master: as returned by `resolve_master`.
        settings: of the service.
        jars: as returned by `connector_jars`.
        scratch: folder for temporary files.
        java_options: further options of the JVM; without any, the class-data archive is used if it exists.
    """
    java_options = java_options or archive_options(archive_path(JVM_OPTIONS, jars))
    if settings.enrich_compile == "throughput":
        java_options += " -XX:TieredStopAtLevel=4"  # overrides the earlier one
    token_url = security_of(settings.kafka).token_url
    if token_url:
        # Kafka's client fetches access tokens only from the endpoints that this property names.
        java_options += f" -Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={token_url}"
    conf = {
        # Plans and logs show the options of sources and sinks, which hold Kafka's credentials.
        "spark.sql.redaction.options.regex": "(?i)url|jaas|keystore|password|secret",
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        "spark.driver.memory": settings.enrich_driver_memory,
        # A UDF that hangs within a library, where no signal reaches it, ends with its worker.
        "spark.python.worker.idleTimeoutSeconds": str(round(max(60, settings.enrich_udf_deadline_s * 12))),
        "spark.python.worker.killOnIdleTimeout": "true",
    }
    if task_slots(master) is None:
        conf["spark.jars"] = ",".join(map(str, jars))
    return start_spark(
        master,
        f"hifi-enrich-{settings.stream}",
        scratch,
        {**conf, **settings.enrich_conf},
        java_options,
        cluster_secret(settings.enrich_spark_secret_file),
    )


def cluster_secret(file: Path | None) -> str:
    """The secret of the Spark cluster; empty: there is none.

    Raises:
        Misconfigured: the file cannot be read, or has not one line.
    """
    if file is None:
        return ""
    try:
        secret = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"HIFI_ENRICH_SPARK_SECRET_FILE={file} cannot be read: {error}") from error
    if len(secret.split()) != 1:
        raise Misconfigured(f"HIFI_ENRICH_SPARK_SECRET_FILE={file} must have one line without spaces")
    return secret
