"""Settings of manage: environment variables with the prefix `HIFI_MANAGE_`, besides those of every service."""

from pathlib import Path

from pydantic import Field

from hifi.kafka.settings import ControlSettings, ServiceSettings


class ManageSettings(ServiceSettings, ControlSettings):
    """The settings of manage."""

    manage_host: str = Field("127.0.0.1", description="Address of API and console.")
    manage_port: int = Field(
        0,
        ge=0,
        le=65535,
        description="Their port; 0: any free one.",
    )
    manage_hosts: str = Field(
        "",
        description="Names with a dot that they have, separated by commas; that of `HIFI_MANAGE_URL` is one.",
    )
    manage_url: str = Field("", pattern="^(https?://.+)?$", description="Public URL of manage's console.")
    manage_tls_certificate_file: Path | None = Field(
        None, description="PEM file with the certificate chain for TLS; read again when it changes."
    )
    manage_tls_key_file: Path | None = Field(None, description="PEM file with its key, without a password.")
    manage_versions: int = Field(50, ge=1, description="Newest versions of each pipe that the API shows.")
    manage_audit_entries: int = Field(1000, ge=1, description="Newest audit entries that the API shows.")
    view_url: str = Field("", pattern="^(https?://.+)?$", description="Public URL of view's console.")
    observe_url: str = Field(
        "",
        pattern="^(https?://.+)?$",
        description="Public URL of observe's console.",
    )
