"""How clients authenticate to Kafka and encrypt: the variables `HIFI_KAFKA_SECURITY_…`. Secrets are read from files."""

import re
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from hifi.runtime.settings import load

PREFIX: Final = "HIFI_KAFKA_SECURITY_"
_TOKEN_URL: Final = re.compile(r"https?://[^\s\x00-\x20\x7f/?#@]+(/[^\s\x00-\x20\x7f]*)?")


class KafkaSecurity(BaseModel):
    """Security of the connections to one Kafka cluster."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT",
        description="Security protocol; `SASL_PLAINTEXT` does not encrypt.",
    )
    mechanism: Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "OAUTHBEARER"] = Field(
        "SCRAM-SHA-512", description="SASL mechanism."
    )
    ca_file: Path | None = Field(
        None,
        description="PEM file with the certificate authorities for brokers; default: the system's.",
    )
    certificate_file: Path | None = Field(
        None, description="PEM file with the client's certificate chain, for mutual TLS."
    )
    key_file: Path | None = Field(
        None, description="PEM file with the client's private key, PKCS #8, unencrypted."
    )
    user: str = Field("", description="SASL user; with OAUTHBEARER the client id.")
    password_file: Path | None = Field(
        None,
        description="File with the password or client secret; read for each connection.",
    )
    token_url: str = Field("", description="Token endpoint for OAUTHBEARER (client credentials grant).")
    token_scope: str = Field("", description="Scope to request there.")

    @property
    def tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.protocol in {"SSL", "SASL_SSL"}

    @property
    def sasl(self) -> bool:
        """Whether clients authenticate with SASL."""
        return self.protocol in {"SASL_PLAINTEXT", "SASL_SSL"}

    @property
    def environment(self) -> dict[str, str]:
        """The variables that give another process the same settings."""
        return {
            PREFIX + name.upper(): str(value)
            for name, value in self.model_dump(exclude_defaults=True).items()
        }

    @model_validator(mode="after")
    def _complete(self) -> Self:
        name = f"{PREFIX}PROTOCOL={self.protocol}"
        if self.sasl and not (self.user and self.password_file):
            raise ValueError(f"{name} needs {PREFIX}USER and {PREFIX}PASSWORD_FILE")
        if self.sasl and self.mechanism == "OAUTHBEARER" and not self.token_url:
            raise ValueError(f"{PREFIX}MECHANISM=OAUTHBEARER needs {PREFIX}TOKEN_URL")
        if self.token_url and not _TOKEN_URL.fullmatch(self.token_url):
            raise ValueError(f"{PREFIX}TOKEN_URL: {self.token_url!r} is not an http or https URL")
        if not self.sasl and (self.user or self.password_file):
            raise ValueError(
                f"{name} sends no user and password: set {PREFIX}PROTOCOL=SASL_SSL, or remove "
                f"{PREFIX}USER and {PREFIX}PASSWORD_FILE"
            )
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError(f"set both {PREFIX}CERTIFICATE_FILE and {PREFIX}KEY_FILE, or neither")
        if not self.tls and (self.ca_file or self.certificate_file):
            raise ValueError(
                f"{name} does not use TLS: set {PREFIX}PROTOCOL=SSL or SASL_SSL, or remove {PREFIX}CA_FILE, "
                f"{PREFIX}CERTIFICATE_FILE and {PREFIX}KEY_FILE"
            )
        return self


class KafkaSecuritySettings(BaseSettings, KafkaSecurity):
    """KafkaSecurity as the environment gives it."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, env_ignore_empty=True, extra="ignore", frozen=True)


def load_security() -> KafkaSecurity:
    """Read the variables `HIFI_KAFKA_SECURITY_…`.

    Raises:
        Misconfigured: a value is wrong, or values do not fit together; the message names the variables.
    """
    return KafkaSecurity.model_validate(load(KafkaSecuritySettings).model_dump())
