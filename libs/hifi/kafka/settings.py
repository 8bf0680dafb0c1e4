"""Settings of a stream (name, Kafka, retry tiers), of its services, and where its control plane is."""

from typing import Annotated

from pydantic import BeforeValidator, Field
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from hifi.kafka.topics import (
    DEFAULT_TIERS,
    ControlTopics,
    PrincipalTopics,
    Tier,
    Topics,
    parse_tiers,
    principal_topics,
)
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
        description="Colour of this mesh, set by `hifi up --colours`.",
    )
    create_topics: bool = Field(
        default=True,
        description="Create the stream's topics; `false`: only check them.",
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


class ControlSettings(StreamSettings):
    """The control plane and its Kafka."""

    control: str = Field(
        "",
        pattern=r"^([a-z][a-z0-9-]{0,62})?$",
        description="Name of the control plane, the prefix of its topics.",
    )
    control_kafka: str = Field(
        "",
        description="Bootstrap servers of its Kafka; empty: the stream's.",
    )

    @property
    def control_bootstrap(self) -> str:
        """Bootstrap servers of the control plane's Kafka."""
        return self.control_kafka or self.kafka

    @property
    def control_topics(self) -> ControlTopics:
        """The topics of the control plane."""
        return ControlTopics(self.control)

    @property
    def principal_topics(self) -> PrincipalTopics:
        """The topics of principals and audit, on the control plane's Kafka."""
        return self.control_topics if self.control else principal_topics(self.stream)


class EventTimeSettings(StreamSettings):
    """In which minute an event counts: settings of the services that accept events."""

    # observe amends a minute for an hour by default: it would not follow events of an older one.
    time_tolerance_s: float = Field(
        120,
        ge=0,
        le=3600,
        description="Largest difference between an event's time and its accepted time; beyond it, the latter "
        "gives its minute.",
    )


class ColourControlSettings(StreamSettings):
    """The control plane of a stream with two colours."""

    colours: str = Field(
        "",
        pattern=r"^([a-z][a-z0-9-]{0,62})?$",
        description="Control plane with the record of the colours; `hifi up --colours` sets it.",
    )
