"""Settings of egest: environment variables with the prefix `HIFI_EGEST_`, beside those of every service."""

from pydantic import Field

from hifi.kafka.settings import ServiceSettings


class EgestSettings(ServiceSettings):
    """Settings of egest."""

    drain_s: float = Field(
        45,
        gt=0,
        description="Maximum time to drain after SIGTERM, seconds; above the longest destination time-out.",
    )
    egest_lane_events: int = Field(
        1000,
        ge=1,
        description="Maximum number of deliveries in a lane, at least four batches of its destination; others wait or"
        " go to the retrier.",
    )
    egest_lane_bytes: int = Field(
        8 * 1024 * 1024, ge=1024, description="Maximum size of the deliveries in a lane, bytes."
    )
    egest_in_flight_events: int = Field(
        10_000,
        ge=1,
        description="Maximum number of deliveries in all lanes together; a lane never gets more than is free.",
    )
    egest_in_flight_bytes: int = Field(
        32 * 1024 * 1024, ge=1024, description="Maximum size of the deliveries in all lanes together, bytes."
    )
    egest_pending_records: int = Field(
        50_000,
        ge=1,
        description="Maximum number of records of a partition between the first incomplete and the last read one.",
    )
    egest_fetch_bytes: int = Field(
        256 * 1024, ge=1024, description="Maximum number of bytes of a partition in one fetch."
    )
    egest_send_within_s: float = Field(
        10,
        gt=0,
        description="Maximum time that a delivery is queued in a lane, seconds; then it goes to the retrier.",
    )
    egest_unacknowledged_receipts: int = Field(
        2000,
        ge=1,
        description="Maximum number of a lane's outcomes that Kafka has not acknowledged; then the lane stops sending.",
    )
    egest_secrets_refresh_s: float = Field(
        60, gt=0, description="Time after which the secrets of destinations are read again, seconds."
    )
    egest_park_bytes: int = Field(
        64 * 1024 * 1024,
        ge=0,
        description="Size of the deliveries that an instance hands to the retrier for a destination without one "
        "success, bytes, each with 1 KiB for its headers; beyond it the destination is parked.",
    )
    egest_park_after_s: float = Field(
        3600,
        gt=0,
        description="Time without a success after which a destination whose deliveries go to the retrier is parked, "
        "seconds.",
    )
    egest_pipes_wait_s: float = Field(
        30,
        gt=0,
        description="Maximum time that a partition waits for a version of a pipe, seconds; then its events go to the "
        "retrier.",
    )
