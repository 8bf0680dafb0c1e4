"""Settings, read from environment variables `HIFI_…`. docs/settings.md is generated from these models."""

import os
import socket
from typing import Annotated, Literal, TypeVar

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from hifi.errors import Misconfigured
from hifi.topics import DEFAULT_TIERS, Tier, Topics, parse_tiers

S = TypeVar("S", bound=BaseSettings)


class StreamSettings(BaseSettings):
    """The stream and its Kafka: settings of services and of the command line."""

    model_config = SettingsConfigDict(env_prefix="HIFI_", extra="ignore", frozen=True)

    kafka: str = Field("127.0.0.1:9092", description="Kafka's bootstrap servers, `HOST:PORT,…`.")
    stream: str = Field(
        "hifi",
        pattern=r"^[a-z][a-z0-9-]{0,62}$",
        description="Name of the stream, the prefix of its topics and consumer groups.",
    )
    tiers: Annotated[tuple[Tier, ...], NoDecode, BeforeValidator(parse_tiers)] = Field(
        DEFAULT_TIERS,
        min_length=1,
        description="Delays of the retry tiers, ascending, `5s,30s,2m,10m,1h`; the same for every service.",
    )

    colour: str = Field(
        "",
        pattern="^(blue|green)?$",
        description="Colour that this mesh is of a stream with two colours; `hifi up --colours` sets it. Empty: the "
        "stream has no colours. A stream that was set up as a colour stays one.",
    )
    create_topics: bool = Field(
        default=True,
        description="Whether `hifi up` and provisioning create the stream's topics. `false`: they only check them; "
        "`hifi topics show` prints what must exist.",
    )

    @property
    def topics(self) -> Topics:
        """The topics of the stream."""
        return Topics(self.stream, self.tiers)


class ServiceSettings(StreamSettings):
    """Settings of every service."""

    host: str = Field("127.0.0.1", description="Address on which /healthz, /readyz and /metrics are served.")
    port: int = Field(0, ge=0, le=65535, description="Port of the same; 0: any free port, which is logged.")
    instance: str = Field(
        default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}",
        description="Name of this instance in logs and consumer groups.",
    )
    log_format: Literal["auto", "json", "console"] = Field(
        "auto", description="Log format; `auto`: readable on a terminal, else JSON."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Least level that is logged."
    )
    drain_s: float = Field(25, gt=0, description="Bound on draining after SIGTERM, seconds.")
    commit_interval_s: float = Field(0.5, gt=0, description="Time between commits of offsets, seconds.")
    session_timeout_s: float = Field(
        10, ge=1, description="Kafka removes a member that sends no heartbeats for so long, seconds."
    )
    rebalance_timeout_s: float = Field(
        60,
        gt=0,
        description="Bound on draining in a rebalance, seconds; above the longest destination time-out.",
    )


def load(settings: type[S]) -> S:
    """Read settings from the environment.

    Raises:
        Misconfigured: a value is wrong; the message names the variable.
    """
    try:
        return settings()
    except ValidationError as error:
        prefix = settings.model_config.get("env_prefix", "")
        lines = [
            f"{prefix}{'_'.join(map(str, problem['loc'])).upper()}: {problem['msg']} (got {problem['input']!r})"
            if problem["loc"]
            else problem["msg"].removeprefix("Value error, ")
            for problem in error.errors(include_url=False)
        ]
        raise Misconfigured("settings are wrong:\n  " + "\n  ".join(lines)) from None
