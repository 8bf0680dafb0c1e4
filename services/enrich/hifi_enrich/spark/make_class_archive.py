"""Makes the class-data archive of Spark's JVM: `python -m hifi_enrich.spark.make_class_archive`.

It takes about 40 s once and 160 MB in the user's cache folder, where the three archives used last are kept; see
`class_archive`.
"""

import contextlib
import sys
import tempfile
from pathlib import Path
from typing import Final, get_args

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from hifi.pipe.model import Pipe, QueryTrigger
from hifi.pipe.revision import PipeRevision
from hifi.spark.catalyst import Catalyst
from hifi.spark.spark_session import JVM_OPTIONS, scratch_folder, stop_spark
from hifi_enrich.plan.compiler import PipeCompiler
from hifi_enrich.plan.dataframe import DataFrameBuilder
from hifi_enrich.plan.query_plan import LookupBroadcasts
from hifi_enrich.settings import EnrichSettings
from hifi_enrich.spark.class_archive import QUIET, archive_path, remove_old_archives
from hifi_enrich.spark.session import connector_jars, evaluation_conf, start_session
from hifi_enrich.spark.warm_up_records import warm_up_records

_NO_BROKER: Final = {"kafka.bootstrap.servers": "127.0.0.1:1"}
_COLUMNS: Final = "key binary, value binary, headers array<struct<key string, value binary>>"
_EXAMPLE: Final = {
    "pipe": "example",
    "source": {"keys": [{"env": "NONE"}]},
    "enrich": {
        "fields": {"text": "string", "number": "int", "at": "timestamp"},
        "derive": {
            "a": "upper(concat_ws('-', text, cast(number as string)))",
            "b": "round(number / 3, 1)",
            "c": "at + interval 1 day",
            "d": "case when number > 1 then 'x' else 'y' end",
        },
        "filter": "number is not null",
    },
    "destinations": [{"name": "one", "url": "http://127.0.0.1/", "when": "b > 0"}],
}


def make_archive() -> Path:
    """Make the archive unless it exists.

    Returns:
        Path of the archive.

    Raises:
        Misconfigured: a jar of the connector is missing.
    """
    settings = EnrichSettings()
    jars = connector_jars(settings.enrich_spark_jars)
    archive = archive_path(JVM_OPTIONS, jars)
    if archive.exists():
        return archive
    archive.parent.mkdir(parents=True, exist_ok=True)
    # In the same file system, so that the archive gets its name only when it is complete.
    with tempfile.TemporaryDirectory(dir=archive.parent) as folder, scratch_folder() as scratch:
        unfinished_archive = Path(folder) / archive.name
        java_options = f"-XX:ArchiveClassesAtExit={unfinished_archive} {QUIET}"
        spark = start_session("local[2]", settings, jars, scratch, java_options)
        _load_classes(spark, scratch)
        stop_spark(spark, timeout_s=120)
        unfinished_archive.rename(archive)
    remove_old_archives(archive.parent)
    return archive


def _load_classes(spark: SparkSession, scratch: Path) -> None:
    """Load the classes of the service by running its work, as far as possible without Kafka."""
    spark.sparkContext.setLogLevel("OFF")
    catalyst = Catalyst(spark)
    lookups = LookupBroadcasts(catalyst.broadcast(catalyst.jvm.java.util.HashMap()), frozenset())
    pipe = Pipe.model_validate(_EXAMPLE)
    plan = PipeCompiler(catalyst).plan([PipeRevision(pipe, 0)], 0, lookups, 2, {})
    record_rows = [(record.key, record.value, record.headers) for record in warm_up_records([pipe], {}, 200)]
    records = spark.createDataFrame(record_rows, _COLUMNS).withColumn("partition", F.lit(0))
    builder = DataFrameBuilder(catalyst, "enriched", "dead-letter", 1 << 20, 2, local=True)
    for trigger in get_args(QueryTrigger):
        for name, value in evaluation_conf(trigger, local=True).items():
            spark.conf.set(name, value)
        frame = builder.build(records, plan, trigger)
        frame.write.format("noop").mode("overwrite").save()
    rate_stream = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = rate_stream.writeStream.format("noop").option("checkpointLocation", str(scratch / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination(30)
    timeouts = {
        "kafka.default.api.timeout.ms": "500",
        "kafka.request.timeout.ms": "400",
        "kafka.max.block.ms": "500",
    }
    read_options = {**_NO_BROKER, **timeouts, "assign": '{"none":[0]}', "fetchOffset.numRetries": "0"}
    for kafka_call in (
        lambda: frame.write.format("kafka").options(**_NO_BROKER, **timeouts).save(),
        lambda: spark.read.format("kafka").options(**read_options).load().collect(),
    ):
        with contextlib.suppress(
            PySparkException, Py4JError
        ):  # no broker listens there, but the classes are loaded
            kafka_call()


if __name__ == "__main__":
    print(make_archive(), file=sys.stderr)
