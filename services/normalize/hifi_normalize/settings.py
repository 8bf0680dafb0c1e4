"""Settings of normalize, from environment variables with the prefix `HIFI_`."""

from pydantic import Field

from hifi.kafka.settings import ServiceSettings
from hifi_normalize.functions.function_runner import FunctionLimits


class NormalizeSettings(ServiceSettings):
    """Limits of normalize."""

    normalize_pipe_wait_s: float = Field(
        30,
        gt=0,
        description="Wait for the revision of an event's pipe after which /readyz warns; it continues.",
    )
    normalize_broken_retry_s: float = Field(
        120, gt=0, description="Time between attempts on a broken revision."
    )
    normalize_buffer_bytes: int = Field(
        32 * 1024 * 1024,
        ge=1024 * 1024,
        description="Memory for unacknowledged records.",
    )
    normalize_idempotency_window_s: float = Field(
        600,
        ge=0,
        le=3600,
        description="Window in which an event with the same id and data is a duplicate.",
    )
    normalize_max_fingerprints: int = Field(
        1_000_000,
        ge=1000,
        description="Most fingerprints per instance, 150 bytes each; above, the window shrinks with a warning.",
    )
    normalize_function_deadline_s: float = Field(
        0.5,
        gt=0,
        description="Longest call of a function; longer: dead letter, and three quarantine the pipe.",
    )
    normalize_function_mean_s: float = Field(
        0.02,
        gt=0,
        description="Longest mean call in a fetch; beyond: dead letters.",
    )
    normalize_function_memory_mb: int = Field(256, ge=16, description="Memory of a function's worker.")

    @property
    def function_limits(self) -> FunctionLimits:
        """Limits of the functions of pipes."""
        return FunctionLimits(
            self.normalize_function_deadline_s,
            self.normalize_function_mean_s,
            self.normalize_function_memory_mb * 2**20,
        )
