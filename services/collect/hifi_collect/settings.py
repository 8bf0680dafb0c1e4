"""Settings of collect, from environment variables with the prefix `HIFI_`."""

from pathlib import Path

from pydantic import Field

from hifi.kafka.settings import (
    ColourControlSettings,
    ControlSettings,
    EventTimeSettings,
    ServiceSettings,
)

_MIB = 1024 * 1024


class CollectSettings(ServiceSettings, ControlSettings, ColourControlSettings, EventTimeSettings):
    """Limits of collect."""

    collect_max_event_bytes: int = Field(
        _MIB,
        ge=1024,
        le=2 * _MIB,
        description="Largest value of a record; larger: dead letter.",
    )
    collect_buffer_bytes: int = Field(32 * _MIB, ge=_MIB, description="Memory for unacknowledged events.")
    collect_temp: Path | None = Field(
        None,
        description="Folder for the object being read; default: the system's for temporary files.",
    )
    collect_reader_bytes: int = Field(
        256 * _MIB,
        ge=64 * _MIB,
        description="Memory for a process that reads objects.",
    )
    collect_retry_s: float = Field(
        30,
        gt=0,
        description="Time between attempts on a source with unusable settings.",
    )
    collect_backfill_lag_s: float = Field(
        1,
        gt=0,
        description="Lag of normalize or enrich (egest: at least 5 s) above which backfills slow down.",
    )

    @property
    def progress_kafka(self) -> str:
        """Bootstrap servers of the Kafka with the progress of tables and objects: with two colours it outlives both."""
        return self.control_bootstrap if self.colours else self.kafka
