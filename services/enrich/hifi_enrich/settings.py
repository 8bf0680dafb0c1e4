"""Settings of enrich: environment variables with the prefix `HIFI_ENRICH_`, beside those of every service."""

from typing import Literal

from pydantic import Field

from hifi.settings import ServiceSettings

Trigger = Literal["micro-batch", "real-time"]


class EnrichSettings(ServiceSettings):
    """What enrich can be told."""

    enrich_trigger: Trigger = Field(
        "micro-batch", description="`real-time` answers in milliseconds and allows no UDF."
    )
    enrich_max_offsets_per_trigger: int = Field(
        50_000,
        ge=1,
        description="Events of a micro-batch at most: bounds memory and latency while it catches up.",
    )
    enrich_batch_s: float = Field(
        30, ge=5, le=600, description="Length of a batch with the real-time trigger, seconds."
    )
    enrich_master: str = Field(
        "", description="Spark's master; default: `local[N]` with a slot more than the stream has partitions."
    )
    enrich_driver_memory: str = Field(
        "1g", pattern=r"^\d+[mg]$", description="Heap of Spark's driver, as `512m` or `2g`."
    )
    enrich_compile: Literal["start", "throughput"] = Field(
        "start",
        description="`start`: ready soon, and steady from the first second on; `throughput`: Java's second compiler "
        "too, which takes some CPU for minutes and then about halves what an event costs.",
    )
    enrich_conf: dict[str, str] = Field(default={}, description="Further Spark settings, as a JSON object.")
    enrich_max_record_bytes: int = Field(
        3 * 1024 * 1024,
        ge=1024,
        description="Key and value of an enriched event at most; above: dead letter `too-large`.",
    )
    enrich_temp: str = Field(
        "",
        description="Folder for Spark's scratch files, nothing in it outlives the process; default: memory (/dev/shm).",
    )
    spark_jars: str = Field(
        "", description="Jars of Spark's Kafka connector, paths with commas; default: those of hifi-infra."
    )
