"""Settings of collect, from environment variables with the prefix `HIFI_`."""

from pydantic import Field

from hifi.settings import ServiceSettings

_MIB = 1024 * 1024


class CollectSettings(ServiceSettings):
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
    collect_retry_s: float = Field(
        30,
        gt=0,
        description="Time between attempts to read a source whose settings cannot be used, seconds.",
    )
    collect_backfill_lag_s: float = Field(
        1,
        gt=0,
        description="Backfills of sources slow down while normalize or enrich is later than this, seconds, or egest is"
        " later than 5 s (or this, if it is more).",
    )
