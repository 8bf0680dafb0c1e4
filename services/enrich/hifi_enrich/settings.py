"""Settings of enrich: environment variables with the prefix `HIFI_ENRICH_`, beside those of every service."""

from pathlib import Path
from typing import Literal

from pydantic import Field

from hifi.kafka.settings import ServiceSettings
from hifi.pipe.model import Trigger
from hifi.spark.lookup_reader import ReadLimits


class EnrichSettings(ServiceSettings):
    """Settings of enrich."""

    enrich_trigger: Trigger = Field(
        "auto",
        description="`real-time`: lag of milliseconds, no UDF; `micro-batch`: a batch every 300 ms; `auto`: "
        "real-time, but micro-batch with a UDF, on a Spark cluster, or with too few slots.",
    )
    enrich_max_offsets_per_trigger: int = Field(
        50_000,
        ge=1,
        description="Most events in a micro-batch; bounds memory and latency in a backlog.",
    )
    enrich_batch_s: float = Field(30, ge=5, le=600, description="Length of a real-time batch.")
    enrich_master: str = Field(
        "",
        description="Spark master, such as `local[4]` or `spark://HOST:7077`; default: local, a slot more than "
        "partitions.",
    )
    enrich_spark_secret_file: Path | None = Field(
        None,
        description="File with the Spark cluster's shared secret; default: no authentication and encryption.",
    )
    enrich_driver_memory: str = Field("1g", pattern=r"^\d+[mg]$", description="Heap of Spark's driver.")
    enrich_compile: Literal["start", "throughput"] = Field(
        "start",
        description="JIT compilers. `start`: fast start; `throughput`: minutes of CPU, then half the cost per event.",
    )
    enrich_conf: dict[str, str] = Field(default={}, description="Further Spark settings, a JSON object.")
    enrich_max_record_bytes: int = Field(
        3 * 1024 * 1024,
        ge=1024,
        description="Largest enriched event; larger: dead letter `too-large`.",
    )
    enrich_sql_cpu_s: float = Field(
        1,
        gt=0,
        description="CPU time of a pipe's SQL for an event; longer: dead letter `sql-budget`, and three quarantine the "
        "pipe.",
    )
    enrich_sql_memory_mb: int = Field(
        64,
        ge=1,
        le=1024,
        description="Memory of the values that a pipe's SQL makes for an event; more: as above.",
    )
    enrich_udf_deadline_s: float = Field(
        5,
        gt=0,
        description="Longest call of a UDF; longer: dead letter, and three quarantine the pipe.",
    )
    enrich_udf_memory_mb: int = Field(512, ge=16, description="Memory for UDFs in each Python worker.")
    enrich_lookup_mb: int = Field(
        1024, ge=1, description="Memory of a lookup's rows while they are read; more: the table is not used."
    )
    enrich_lookup_s: float = Field(
        120,
        gt=0,
        description="Time to read a lookup; longer: as above. Also the longest wait at start for lookups that cannot "
        "be read; then their pipes' events become dead letters.",
    )
    enrich_stall_s: float = Field(
        120,
        ge=10,
        description="Time after which a stuck batch is restarted (real-time: after its end).",
    )
    enrich_temp: str = Field(
        "",
        description="Folder for Spark's temporary files; default: memory (/dev/shm).",
    )
    enrich_spark_jars: str = Field(
        "",
        description="Jars of Spark's Kafka connector, separated by commas; default: those of "
        "`python -m hifi_infra.java.jars`.",
    )

    @property
    def lookup_limits(self) -> ReadLimits:
        """Limits of memory and time for reading a lookup."""
        return ReadLimits(self.enrich_lookup_mb * 1024**2, self.enrich_lookup_s)

    @property
    def driver_heap_bytes(self) -> int:
        """Heap of Spark's driver."""
        number, unit = self.enrich_driver_memory[:-1], self.enrich_driver_memory[-1]
        return int(number) * (1024**3 if unit == "g" else 1024**2)
