"""Settings of normalize, from environment variables with the prefix `HIFI_`."""

from pydantic import Field

from hifi.settings import ServiceSettings


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
