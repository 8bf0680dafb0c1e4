"""A class-data archive for Spark's JVM: loading 20,000 classes anew is half of its start.

`python -m hifi_enrich.archive` makes it (about 40 s, 150 MB in the user's cache folder); without it enrich starts all
the same, only slower. The JVM itself refuses an archive that does not fit its version or jars.
"""

import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from hifi.pipe.model import Pipe
from hifi.pipe.registry import PipeVersion

_QUICK: Final = {"kafka.bootstrap.servers": "127.0.0.1:1"}
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


QUIET: Final = "-Xlog:cds=off -Xlog:cds+dynamic=off -Xlog:class+path=off"
"""The JVM is not to talk about classes that it cannot archive, nor about an archive that it cannot use."""


def path(java_options: str, jars: Sequence[Path]) -> Path:
    """Where the archive for this Java, Spark, class path and these options belongs."""
    java = Path(shutil.which("java", path=_java_path()) or "java").resolve()
    version = java.stat().st_mtime_ns if java.exists() else 0
    parts = [str(java), str(version), pyspark.__version__, java_options, *map(str, jars)]
    digest = hashlib.blake2b("\n".join(parts).encode(), digest_size=8).hexdigest()
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "hifi" / f"spark-{digest}.jsa"


def _java_path() -> str:
    home = os.environ.get("JAVA_HOME")
    return os.pathsep.join([*([f"{home}/bin"] if home else []), os.environ.get("PATH", "")])


def make() -> Path:
    """Make the archive unless it is there.

    Raises:
        Misconfigured: the connector's jars cannot be had.
    """
    from hifi_enrich import session
    from hifi_enrich.settings import EnrichSettings

    settings = EnrichSettings()
    jars = session.jars(settings.spark_jars)
    target = path(session.JVM, jars)
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder, session.temp_folder("") as temp:
        part = Path(folder) / target.name
        spark = session.start("local[2]", settings, jars, temp, f"-XX:ArchiveClassesAtExit={part} {QUIET}")
        _load_classes(spark, temp)
        session.stop(spark, timeout_s=120)
        part.rename(target)
    return target


def _load_classes(spark: SparkSession, temp: Path) -> None:
    """Do once what the service does, as far as that goes without Kafka."""
    from hifi_enrich.catalyst import Catalyst
    from hifi_enrich.frame import Frame
    from hifi_enrich.plan import Compiler, Served
    from hifi_enrich.warm import sample

    spark.sparkContext.setLogLevel("OFF")
    catalyst = Catalyst(spark)
    served = Served(catalyst.broadcast(catalyst.jvm.java.util.HashMap()), frozenset())
    plan = Compiler(catalyst).plan([PipeVersion(Pipe.model_validate(_EXAMPLE), 0)], 0, served, 2, {})
    frame = Frame(catalyst, "enriched", "dead-letter", 1 << 20, 2).build(sample(spark, ["example"], 2), plan)
    frame.write.format("noop").mode("overwrite").save()
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = rate.writeStream.format("noop").option("checkpointLocation", str(temp / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination(30)
    no_broker = {
        "kafka.default.api.timeout.ms": "500",
        "kafka.request.timeout.ms": "400",
        "kafka.max.block.ms": "500",
    }
    options = {**_QUICK, **no_broker, "assign": '{"none":[0]}', "fetchOffset.numRetries": "0"}
    for attempt in (
        lambda: frame.write.format("kafka").options(**_QUICK, **no_broker).save(),
        lambda: spark.read.format("kafka").options(**options).load().collect(),
    ):
        with contextlib.suppress(PySparkException, Py4JError):  # nobody listens there; the classes are loaded
            attempt()


if __name__ == "__main__":
    print(make(), file=sys.stderr)
