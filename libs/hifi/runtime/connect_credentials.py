"""The credentials of Kafka Connect's REST API, which the operator has: a pipe names the URL only."""

import base64
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from hifi.runtime.errors import Misconfigured
from hifi.runtime.settings import load


class ConnectSettings(BaseSettings):
    """Settings of collect for Kafka Connect."""

    model_config = SettingsConfigDict(env_prefix="HIFI_CONNECT_", extra="ignore", frozen=True)

    credentials_file: Path | None = Field(
        None,
        description="File with a line `URL USER PASSWORD` for each Kafka Connect whose REST API wants basic "
        "authentication; sent to no other URL.",
    )


def authorization(url: str) -> dict[str, str]:
    """The header of a request to a URL; empty: the operator has no credentials for its scheme, host and port.

    Raises:
        Misconfigured: the file cannot be read, or a line is wrong.
    """
    file = load(ConnectSettings).credentials_file
    if file is None or not file.exists():
        return {}
    try:
        lines = [line.split() for line in file.read_text().splitlines() if line.strip()]
        login_by_origin = {
            _origin(declared_url): f"{user}:{password}" for declared_url, user, password in lines
        }
    except (OSError, ValueError) as error:
        raise Misconfigured(
            f"HIFI_CONNECT_CREDENTIALS_FILE={file} needs lines `URL USER PASSWORD`: {type(error).__name__}"
        ) from None
    login = login_by_origin.get(_origin(url))
    return {} if login is None else {"Authorization": f"Basic {base64.b64encode(login.encode()).decode()}"}


def _origin(url: str) -> tuple[str, str, int | None]:
    """Scheme, host and port."""
    split_url = urlsplit(url)
    return split_url.scheme, split_url.hostname or "", split_url.port
