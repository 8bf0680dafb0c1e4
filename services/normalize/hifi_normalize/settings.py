"""What normalize can be told, by environment variables with the prefix `HIFI_`."""

from pydantic import Field

from hifi.settings import ServiceSettings


class NormalizeSettings(ServiceSettings):
    """Bounds of normalize."""

    normalize_pipe_wait_s: float = Field(
        30,
        gt=0,
        description="Time to wait quietly for a version of a pipe that an event names; then it is an error.",
    )
    normalize_refresh_s: float = Field(
        120,
        gt=0,
        description="Time between tries to use a version of a pipe that could not be used, seconds.",
    )
    normalize_buffer_bytes: int = Field(
        32 * 1024 * 1024, ge=1024 * 1024, description="Bound on what Kafka has not acknowledged yet."
    )
    normalize_id_window_s: float = Field(
        600,
        ge=0,
        le=3600,
        description="An event that a client sends again with the same id and data within this time ends as a"
        " duplicate, seconds; 0: every event passes.",
    )
    normalize_ids: int = Field(
        1_000_000,
        ge=1000,
        description="Bound on ids remembered by one instance, about 150 bytes each; beyond it the window gets"
        " shorter, which /readyz and a metric tell.",
    )
