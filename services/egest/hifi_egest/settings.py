"""Settings of egest: environment variables with the prefix `HIFI_EGEST_`, beside those of every service."""

from pydantic import Field

from hifi.kafka.settings import ServiceSettings


class EgestSettings(ServiceSettings):
    """Settings of egest."""

    drain_s: float = Field(
        45,
        gt=0,
        description="Time to drain after SIGTERM; above the longest destination time-out.",
    )
    egest_lane_events: int = Field(
        1000,
        ge=1,
        description="Most deliveries in a lane, at least four batches; others wait or go to the retrier.",
    )
    egest_lane_bytes: int = Field(
        8 * 1024 * 1024, ge=1024, description="Largest size of a lane's deliveries."
    )
    egest_in_flight_events: int = Field(
        10_000,
        ge=1,
        description="Most deliveries in all lanes.",
    )
    egest_in_flight_bytes: int = Field(
        32 * 1024 * 1024, ge=1024, description="Largest size of deliveries in all lanes."
    )
    egest_pending_records: int = Field(
        50_000,
        ge=1,
        description="Most unfinished records of a partition.",
    )
    egest_fetch_bytes: int = Field(256 * 1024, ge=1024, description="Most bytes of a partition per fetch.")
    egest_send_within_s: float = Field(
        10,
        gt=0,
        description="Longest time in a lane's queue, and longest pause of a destination that egest waits out; then "
        "the retrier.",
    )
    egest_unacknowledged_receipts: int = Field(
        2000,
        ge=1,
        description="Unacknowledged outcomes at which a lane stops sending.",
    )
    egest_secrets_refresh_s: float = Field(
        60, gt=0, description="Time between reads of destinations' secrets."
    )
    egest_park_bytes: int = Field(
        64 * 1024 * 1024,
        ge=0,
        description="Size handed to the retrier without a success at which a destination is parked.",
    )
    egest_park_after_s: float = Field(
        3600,
        gt=0,
        description="Time without a success after which a failing destination is parked.",
    )
    egest_pipes_wait_s: float = Field(
        30,
        gt=0,
        description="Longest wait for a revision of a pipe; then its events go to the retrier.",
    )
