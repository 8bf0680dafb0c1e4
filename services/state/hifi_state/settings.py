"""Settings of state: environment variables with the prefix `HIFI_STATE_`, beside those of every service."""

from pathlib import Path

from pydantic import Field

from hifi.kafka.settings import (
    ColourControlSettings,
    ControlSettings,
    EventTimeSettings,
    ServiceSettings,
)

_MIB = 1024 * 1024


class StateSettings(ServiceSettings, ControlSettings, ColourControlSettings, EventTimeSettings):
    """Settings of state."""

    state_interval_s: float = Field(5, ge=0.1, le=3600, description="Longest time between batches of a step.")
    state_max_offsets_per_batch: int = Field(
        50_000, ge=1, description="Most records of `enriched` per batch, over all partitions."
    )
    state_master: str = Field("local[2]", description="Spark master.")
    state_driver_memory: str = Field("1g", pattern=r"^\d+[mg]$", description="Heap of Spark's driver.")
    state_conf: dict[str, str] = Field(default={}, description="Further Spark settings, a JSON object.")
    state_data: Path | None = Field(
        None,
        description="Folder for open windows; default: temporary.",
    )
    state_max_file_bytes: int = Field(
        4096 * _MIB,
        ge=_MIB,
        description="Size of a step's file above which it reads only the partitions that hold its windows open.",
    )
    state_temp: str = Field("", description="Folder for Spark's temporary files; default: memory (/dev/shm).")
    state_buffer_bytes: int = Field(32 * _MIB, ge=_MIB, description="Memory for unacknowledged results.")
