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
