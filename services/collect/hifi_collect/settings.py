"""Settings of collect, from environment variables with the prefix `HIFI_`."""

from pathlib import Path

from pydantic import Field

from hifi.control.settings import ControlSettings
from hifi.kafka.settings import ServiceSettings

_MIB = 1024 * 1024


class CollectSettings(ServiceSettings, ControlSettings):
    """Limits of collect."""

    collect_max_event_bytes: int = Field(
        _MIB,
        ge=1024,
        le=2 * _MIB,
        description="Largest value of a record of a source; a larger one becomes a dead letter without data.",
    )
    collect_buffer_bytes: int = Field(
        32 * _MIB, ge=_MIB, description="Memory for events that Kafka has not acknowledged yet."
    )
    collect_time_tolerance_s: float = Field(
        120,
        ge=0,
        description="An event whose time differs more than this from its accepted time, in seconds, counts in the"
        " minute of its accepted time.",
    )
    collect_temp: Path | None = Field(
        None,
        description="Folder for the object of a bucket that is being read; default: that of the system for temporary"
        " files.",
    )
    collect_retry_s: float = Field(
        30,
        gt=0,
        description="Time between attempts to read a source whose settings cannot be used, seconds.",
    )
    collect_colours: str = Field(
        "",
        description="Control plane, on the Kafka of `HIFI_CONTROL_KAFKA`, with the record of the stream's two colours; "
        "`hifi up --colours` sets it. Empty: the stream has no colours.",
    )
    collect_colour: str = Field("", description="Colour that this collect belongs to, if there are two.")
    collect_backfill_lag_s: float = Field(
        1,
        gt=0,
        description="Backfills of sources slow down while normalize or enrich is later than this, seconds, or egest is"
        " later than 5 s (or this, if it is more).",
    )

    @property
    def progress_kafka(self) -> str:
        """Bootstrap servers of the Kafka with the progress of tables and objects: with two colours it outlives both."""
        return self.control_bootstrap if self.collect_colours else self.kafka
