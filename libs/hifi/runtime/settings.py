"""Settings, read from environment variables `HIFI_…`. docs/settings.md is generated from these models."""

import os
import socket
from pathlib import Path
from typing import Literal, TypeVar

from pydantic import Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from hifi.runtime.errors import Misconfigured

S = TypeVar("S", bound=BaseSettings)


class ProcessSettings(BaseSettings):
    """Settings of every service process."""

    model_config = SettingsConfigDict(env_prefix="HIFI_", extra="ignore", frozen=True)

    host: str = Field("127.0.0.1", description="Address of /healthz, /readyz and /metrics.")
    port: int = Field(0, ge=0, le=65535, description="Their port; 0: any free one.")
    health_hosts: str = Field("", description="Names with a dot that they have, separated by commas.")
    instance: str = Field(
        default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}",
        description="Name in logs and consumer groups, and client id at Kafka.",
    )
    log_format: Literal["auto", "json", "console"] = Field(
        "auto", description="Log format; `auto`: readable on a terminal, else JSON."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest level that is logged."
    )
    certificate_days: float = Field(
        14,
        ge=0,
        description="Days before a certificate expires from which an alarm tells of it.",
    )
    drain_s: float = Field(25, gt=0, description="Time to drain after SIGTERM.")

    def log_fields(self) -> dict[str, str]:
        """Fields of the log line `service-started`: what the process works on."""
        return {}


def read_secret(file: Path | None, variable: str) -> str:
    """The secret that a file has now, without white space around it; empty: no file is set.

    Args:
        file: with the secret.
        variable: that names the file.

    Raises:
        Misconfigured: the file cannot be read.
    """
    if file is None:
        return ""
    try:
        return file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise Misconfigured(f"{variable} cannot be read: {error}") from None


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
