"""Settings of normalize, from environment variables with the prefix `HIFI_`."""

from pydantic import Field

from hifi.kafka.settings import ServiceSettings


class NormalizeSettings(ServiceSettings):
    """Limits of normalize."""

    normalize_pipe_wait_s: float = Field(
        30,
        gt=0,
        description="Time to wait for a pipe version that an event names before it is logged and shown in /readyz,"
        " seconds; the partition waits on.",
    )
    normalize_broken_retry_s: float = Field(
        120, gt=0, description="Time between attempts to use a broken pipe version, seconds."
    )
    normalize_buffer_bytes: int = Field(
        32 * 1024 * 1024,
        ge=1024 * 1024,
        description="Memory for records that Kafka has not acknowledged yet.",
    )
    normalize_idempotency_window_s: float = Field(
        600,
        ge=0,
        le=3600,
        description="An event that a client sends again with the same id and data within this time ends as a"
        " duplicate, seconds. 0: every event passes.",
    )
    normalize_max_fingerprints: int = Field(
        1_000_000,
        ge=1000,
        description="Largest number of event fingerprints that an instance keeps, about 150 bytes each. Above it the"
        " idempotency window becomes shorter; /readyz and a metric show it.",
    )
    normalize_function_deadline_s: float = Field(
        0.5,
        gt=0,
        description="Longest time of a function's call for one event, seconds. An event that takes longer becomes a"
        " dead letter, and after three of them the pipe is quarantined until it is published again.",
    )
    normalize_function_mean_s: float = Field(
        0.02,
        gt=0,
        description="Longest mean time of a function's calls for the events of a fetch, seconds. Events beyond become"
        " dead letters.",
    )
    normalize_function_memory_mb: int = Field(
        256, ge=16, description="Memory that the worker of a function may allocate, MiB."
    )
