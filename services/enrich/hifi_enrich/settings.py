"""Settings of enrich: environment variables with the prefix `HIFI_ENRICH_`, beside those of every service."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from hifi.kafka.settings import ServiceSettings
from hifi.pipe.model import Trigger


class EnrichSettings(ServiceSettings):
    """Settings of enrich."""

    enrich_trigger: Trigger = Field(
        "auto",
        description="Trigger of the Spark query. `real-time` has a lag of milliseconds and allows no UDF; "
        "`micro-batch` starts a batch every 300 ms. `auto`: real-time, but micro-batch while a pipe has a UDF, on a "
        "Spark cluster, and where `HIFI_ENRICH_MASTER` has too few slots for real-time.",
    )
    enrich_max_offsets_per_trigger: int = Field(
        50_000,
        ge=1,
        description="Maximum number of events of a micro-batch. Bounds memory and latency while a backlog is read.",
    )
    enrich_batch_s: float = Field(
        30, ge=5, le=600, description="Length of a batch with the real-time trigger, seconds."
    )
    enrich_master: str = Field(
        "",
        description="Spark master, such as `local[4]` or `spark://HOST:7077`; default: `local[N]` with one slot "
        "more than the stream has partitions.",
    )
    enrich_spark_secret_file: Path | None = Field(
        None,
        description="File with the secret that the processes of a Spark cluster share. With it they authenticate each "
        "other and encrypt (`spark.authenticate`, `spark.network.crypto.enabled`); the master and the workers need the "
        "same. Default: neither.",
    )
    enrich_driver_memory: str = Field(
        "1g", pattern=r"^\d+[mg]$", description="Heap of Spark's driver, such as `512m` or `2g`."
    )
    enrich_compile: Literal["start", "throughput"] = Field(
        "start",
        description="JIT compilers of the JVM. `start`: the first one only, for a fast start and steady latency; "
        "`throughput`: the second one too, which uses CPU for some minutes and then about halves the cost of an event.",
    )
    enrich_conf: dict[str, str] = Field(default={}, description="Further Spark settings, as a JSON object.")
    enrich_max_record_bytes: int = Field(
        3 * 1024 * 1024,
        ge=1024,
        description="Maximum size of key and value of an enriched event, bytes. A larger event becomes a dead letter "
        "`too-large`.",
    )
    enrich_udf_deadline_s: float = Field(
        5,
        gt=0,
        description="Longest time of a call of a UDF, seconds. An event that takes longer alone becomes a dead letter; "
        "after three of them the pipe's events become dead letters at once, until it is published anew.",
    )
    enrich_udf_memory_mb: int = Field(
        512, ge=16, description="Memory that UDFs may allocate in each of Spark's Python workers, MiB."
    )
    enrich_stall_s: float = Field(
        120,
        ge=10,
        description="Time after which a batch that does not end is stopped and started again, seconds; with the "
        "real-time trigger after the end of the batch.",
    )
    enrich_temp: str = Field(
        "",
        description="Folder for Spark's temporary files, which are deleted at the end; default: memory (/dev/shm).",
    )
    enrich_spark_jars: str = Field(
        "",
        description="Jars of Spark's Kafka connector, paths separated by commas; default: those that `make setup` "
        "installed.",
    )
