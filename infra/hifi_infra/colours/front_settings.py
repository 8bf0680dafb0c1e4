"""Settings of the front of two colours."""

from pathlib import Path

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict

from hifi.runtime.health import Health
from hifi.runtime.http.tls import ServerCertificate, server_certificate


class FrontSettings(BaseSettings):
    """Settings of `hifi up --colours` and of the service `colours`: variables with the prefix `HIFI_FRONT_`."""

    model_config = SettingsConfigDict(
        env_prefix="HIFI_FRONT_", env_ignore_empty=True, extra="ignore", frozen=True
    )

    tls_certificate_file: Path | None = Field(
        None, description="PEM file with the certificate chain for TLS; read again when it changes."
    )
    tls_key_file: Path | None = Field(None, description="PEM file with its key, without a password.")

    def certificate(self, health: Health) -> ServerCertificate | None:
        """The certificate of the front; None: it takes plain HTTP.

        Args:
            health: shows a warning while changed files cannot be used.

        Raises:
            Misconfigured: only one of the files is named, or they cannot be used.
        """
        return server_certificate(self.tls_certificate_file, self.tls_key_file, health)
