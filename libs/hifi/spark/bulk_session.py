"""The Spark session of a service whose batches have many records: lake and state."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from hifi.kafka.security import security_of
from hifi.kafka.settings import ServiceSettings
from hifi.spark.jars import installed_jars
from hifi.spark.spark_session import GENERATED, start_spark, task_slots

_CONF: Final = {
    **GENERATED,
    "spark.sql.subexpressionElimination.enabled": "true",  # the data of an event is parsed once, not for each column
    "spark.sql.codegen.cache.maxEntries": "1000",  # a step of state has about 40 classes; the default is 100
    "spark.sql.inMemoryColumnarStorage.compressed": "false",  # a batch is kept for seconds
    # Plans and logs show the options of sources and sinks, which hold Kafka's credentials.
    "spark.sql.redaction.options.regex": "(?i)url|jaas|keystore|password|secret",
}
_CLUSTER_PARTITIONS: Final = 8


def start_bulk_session(
    settings: ServiceSettings,
    service: str,
    scratch: Path,
    master: str,
    driver_memory: str,
    conf: Mapping[str, str],
) -> SparkSession:
    """Start Spark in this process. Blocks for some seconds.

    Args:
        settings: of the service.
        service: name.
        scratch: folder for temporary files.
        master: Spark's master.
        driver_memory: heap of Spark's driver.
        conf: further Spark settings.
    """
    jars = installed_jars("spark")
    slots = task_slots(master)
    session_conf = {
        **_CONF,
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
        "spark.driver.memory": driver_memory,
        "spark.sql.shuffle.partitions": str(slots or _CLUSTER_PARTITIONS),
    }
    if slots is None:
        session_conf["spark.jars"] = ",".join(map(str, jars))
    token_url = security_of(settings.kafka).token_url
    # Kafka's client fetches access tokens only from the endpoints that this property names.
    java_options = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={token_url}" if token_url else ""
    java_options += (
        " -XX:TieredStopAtLevel=4"  # bulk is worth the second compiler; overrides the option for enrich
    )
    return start_spark(
        master, f"hifi-{service}-{settings.stream}", scratch, {**session_conf, **conf}, java_options
    )
