"""HashiCorp Vault, or what answers as it does, such as OpenBao: the HTTP API of its KV secrets engine, version 2.

The operator's settings name the server; a pipe names a path below the mount and a field. Source:
https://developer.hashicorp.com/vault/api-docs/secret/kv/kv-v2
"""

import http.client
import json
import ssl
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import Field, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from hifi.runtime.errors import Misconfigured, Retryable
from hifi.runtime.settings import load

PREFIX: Final = "HIFI_VAULT_"
SEPARATOR: Final = "#"
_SEGMENT: Final = r"[A-Za-z0-9_][A-Za-z0-9_.-]*"
NAME_PATTERN: Final = rf"^{_SEGMENT}(/{_SEGMENT})*{SEPARATOR}{_SEGMENT}$"
"""Of `PATH#FIELD`."""
_TIMEOUT_S: Final = 2.0
_OF_THE_MOMENT: Final = frozenset({400, 401, 407, 408, 412, 425, 429, 472, 473})
"""Answers of 4xx that say nothing about the secret: no token or an engine that is being upgraded (both 400), proxies,
time-outs, quotas, and servers on standby or not up to date."""
_MOST_BYTES: Final = 1024 * 1024
"""Vault's own bound of a secret."""


class VaultSettings(BaseSettings):
    """The Vault from which pipes may name secrets."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True, env_ignore_empty=True)

    address: str = Field(
        "", description="URL of Vault, for secrets `{vault: PATH#FIELD}`; empty: there is none."
    )
    token_file: Path | None = Field(
        None, description="File with the token, such as the sink of Vault Agent; read for each request."
    )
    namespace: str = Field("", description="Namespace of Vault Enterprise.")
    mount: str = Field("secret", description="Path of the KV secrets engine, version 2.")
    ca_file: Path | None = Field(
        None, description="PEM file with the certificate authorities for it; default: the system's."
    )
    refresh_s: float = Field(30, gt=0, description="Time between reads of the secrets in use.")

    @model_validator(mode="after")
    def _is_complete(self) -> "VaultSettings":
        url = urlsplit(self.address)
        if self.address and (url.scheme not in ("http", "https") or not url.hostname or url.username):
            raise ValueError(f"{PREFIX}ADDRESS: {self.address!r} is not an http or https URL")
        if self.address and self.token_file is None:
            raise ValueError(f"{PREFIX}ADDRESS needs {PREFIX}TOKEN_FILE")
        return self


def vault_settings() -> VaultSettings:
    """The settings of this process.

    Raises:
        Misconfigured: they are wrong, or name no Vault.
    """
    settings = load(VaultSettings)
    if not settings.address:
        raise Misconfigured(f"there is no secret manager here: set {PREFIX}ADDRESS and {PREFIX}TOKEN_FILE")
    return settings


class Vault:
    """Reads secrets with one request each."""

    def __init__(self, settings: VaultSettings) -> None:
        self._settings = settings

    def read(self, name: str) -> str:
        """The content of `PATH#FIELD` in its newest version.

        Raises:
            Misconfigured: there is no such path or field, its newest version is deleted, the token may not read it, or
                Vault refuses the request otherwise.
            Retryable: Vault does not answer, is sealed, or does not accept the token.
        """
        path, _, field = name.partition(SEPARATOR)
        secret_path = f"{self._settings.mount.strip('/')}/{path}"
        status, answer = self._get(f"/v1/{self._settings.mount.strip('/')}/data/{path}")
        if status == 403:
            if self._get("/v1/auth/token/lookup-self")[0] == 403:
                raise Retryable(
                    f"Vault at {self._settings.address} does not accept the token in {self._settings.token_file}: it "
                    "may have expired; write a new one into the file"
                )
            raise Misconfigured(
                f"Vault does not let this service read {secret_path}: give the policy of its token `read` on "
                f"{self._settings.mount.strip('/')}/data/{path}"
            )
        if status == 404:
            raise Misconfigured(_absent(secret_path, answer))
        if 400 <= status < 500 and status not in _OF_THE_MOMENT:
            raise Misconfigured(
                f"Vault at {self._settings.address} refuses to read {secret_path}, {status}: {_errors(answer)}"
            )
        if status != 200:
            raise Retryable(
                f"Vault at {self._settings.address} answers {status} for {secret_path}: {_errors(answer)}"
            )
        data = answer.get("data")
        fields = data.get("data") if isinstance(data, dict) else None
        if not isinstance(fields, dict):
            raise Misconfigured(
                f"Vault's answer for {secret_path} is not that of a KV secrets engine of version 2: see {PREFIX}MOUNT"
            )
        value = fields.get(field)
        if not isinstance(value, str) or not value:
            raise Misconfigured(
                f"Vault's secret {secret_path} has no text in the field {field}; write the secret into it"
            )
        return value

    def _get(self, path: str) -> tuple[int, dict[str, Any]]:
        """Status and JSON object of an answer; an empty one where the body is none.

        Raises:
            Retryable: the token cannot be read, or Vault does not answer.
        """
        settings = self._settings
        assert settings.token_file is not None
        url = urlsplit(settings.address)
        try:
            token = settings.token_file.read_text("ascii").strip()
            connection = self._connection()
            try:
                headers = {"X-Vault-Token": token, "X-Vault-Request": "true"}
                if settings.namespace:
                    headers["X-Vault-Namespace"] = settings.namespace
                connection.request("GET", url.path.rstrip("/") + path, headers=headers)
                response = connection.getresponse()
                body = response.read(_MOST_BYTES + 1)
            finally:
                connection.close()
        except (OSError, ValueError, http.client.HTTPException) as error:
            # Not all of these name where, and one of a header would show the token.
            reason = "its token" if isinstance(error, ValueError) else type(error).__name__
            reason = str(error) if isinstance(error, OSError) else reason
            raise Retryable(f"Vault at {settings.address} cannot be asked: {reason}") from None
        try:
            answer = json.loads(body)
        except ValueError:
            answer = None
        return response.status, answer if isinstance(answer, dict) else {}

    def _connection(self) -> http.client.HTTPConnection:
        url = urlsplit(self._settings.address)
        assert url.hostname is not None
        if url.scheme == "http":
            return http.client.HTTPConnection(url.hostname, url.port, timeout=_TIMEOUT_S)
        context = ssl.create_default_context(cafile=self._settings.ca_file)
        return http.client.HTTPSConnection(url.hostname, url.port, timeout=_TIMEOUT_S, context=context)


def _absent(secret_path: str, answer: dict[str, Any]) -> str:
    """Vault answers 404 for a deleted version, too, with its metadata."""
    data = answer.get("data")
    metadata = data.get("metadata") if isinstance(data, dict) else None
    if isinstance(metadata, dict):
        return (
            f"version {metadata.get('version')} of Vault's secret {secret_path} was deleted; write a new one"
        )
    errors = answer.get("errors")  # such as those of a mount or namespace that does not exist
    suffix = f" ({_errors(answer)})" if errors else ""
    return f"Vault has no secret {secret_path}{suffix}; write it, or name another path"


def _errors(answer: dict[str, Any]) -> str:
    errors = answer.get("errors")
    return "; ".join(map(str, errors)) if isinstance(errors, list) and errors else "no reason"
