"""Settings of whatever works on a stream: its name, its Kafka and its retry tiers."""

from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from hifi.kafka.topics import DEFAULT_TIERS, Tier, Topics, parse_tiers
from hifi.runtime.settings import ProcessSettings


class StreamSettings(BaseSettings):
    """The stream and its Kafka: settings of services and of the command line."""

    model_config = SettingsConfigDict(env_prefix="HIFI_", extra="ignore", frozen=True)

    kafka: str = Field("127.0.0.1:9092", description="Kafka's bootstrap servers, `HOST:PORT,…`.")
    stream: str = Field(
        "hifi",
        pattern=r"^[a-z][a-z0-9-]{0,62}$",
        description="Name of the stream, the prefix of topics and consumer groups.",
    )
    tiers: Annotated[tuple[Tier, ...], NoDecode, BeforeValidator(parse_tiers)] = Field(
        DEFAULT_TIERS,
        min_length=1,
        description="Delays of the retry tiers, ascending; the same for every service.",
    )

    colour: str = Field(
        "",
        pattern="^(blue|green)?$",
        description="Colour that this mesh is of a stream with two, set by `hifi up --colours`; a stream set up "
        "as a colour stays one.",
    )
    create_topics: bool = Field(
        default=True,
        description="Create the stream's topics; `false`: only check them (`hifi topics show` lists them).",
    )

    @property
    def topics(self) -> Topics:
        """The topics of the stream."""
        return Topics(self.stream, self.tiers)


class ServiceSettings(ProcessSettings, StreamSettings):
    """Settings of every service."""

    commit_interval_s: float = Field(0.5, gt=0, description="Time between offset commits.")
    session_timeout_s: float = Field(
        10, ge=1, description="Time without heartbeats after which Kafka removes a member."
    )
    rebalance_timeout_s: float = Field(
        60,
        gt=0,
        description="Time to drain in a rebalance; above the longest destination time-out.",
    )

    def log_fields(self) -> dict[str, str]:
        """The stream and its Kafka."""
        return {"stream": self.stream, "kafka": self.kafka}


class EventTimeSettings(StreamSettings):
    """In which minute an event counts: settings of the services that accept events."""

    time_tolerance_s: float = Field(
        120,
        ge=0,
        description="Largest difference between an event's time and its accepted time; beyond it, its minute is that "
        "of the accepted time.",
    )
