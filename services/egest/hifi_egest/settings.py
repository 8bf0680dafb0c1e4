"""Settings of egest."""

from pydantic import Field

from hifi.settings import ServiceSettings


class EgestSettings(ServiceSettings):
    """What egest needs beyond what every service needs."""

    drain_s: float = Field(
        45,
        gt=0,
        description="Bound on draining after SIGTERM, seconds; above the longest destination time-out.",
    )
    lane_events: int = Field(
        1000, ge=1, description="Deliveries that a lane holds; what does not fit goes to the retrier."
    )
    lane_bytes: int = Field(8 * 1024 * 1024, ge=1024, description="Bytes that a lane holds.")
    pending_records: int = Field(
        50_000,
        ge=1,
        description="Records of a partition from the first unfinished one on, beyond which no more are read.",
    )
    fetch_bytes: int = Field(
        256 * 1024, ge=1024, description="Bytes of a partition that are fetched at a time."
    )
    held_events: int = Field(
        10_000, ge=1, description="Deliveries that all lanes hold together; a lane gets no more than is free."
    )
    held_bytes: int = Field(32 * 1024 * 1024, ge=1024, description="Bytes that all lanes hold together.")
    send_within_s: float = Field(
        10, gt=0, description="What a lane has not begun to send after this goes to the retrier, seconds."
    )
    unacknowledged: int = Field(
        2000,
        ge=1,
        description="Receipts of a lane that Kafka has not acknowledged, beyond which it stops sending.",
    )
    secrets_refresh_s: float = Field(
        60, gt=0, description="Time after which secrets are read again, seconds."
    )
    pipes_wait_s: float = Field(
        30,
        gt=0,
        description="A partition waits this long for a pipe's version, seconds; then its events go to the retrier.",
    )
