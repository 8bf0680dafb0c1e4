"""Settings of sign-in with an OpenID Connect provider: environment variables with the prefix `HIFI_OIDC_`."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from hifi.control.principals.principal import Role
from hifi.runtime.egress import host_and_port
from hifi.runtime.settings import read_secret

PREFIX: Final = "HIFI_OIDC_"
EVERYBODY: Final = "*"
"""Stands for everybody whom the provider signs in."""


@dataclass(frozen=True, slots=True)
class RoleGrant:
    """The role that the people of a group have.

    Attributes:
        role: what they may do.
        pipe: to which it is limited; None: the whole stream.
        group: of the provider; `*`: everybody.
    """

    role: Role
    pipe: str | None
    group: str

    @classmethod
    def read(cls, text: str) -> Self:
        """Read `ROLE[/PIPE]=GROUP`.

        Raises:
            ValueError: it is something else.
        """
        scope, separator, group = text.partition("=")
        role, slash, pipe = scope.partition("/")
        if role not in list(Role) or not separator or not group or (slash and not pipe):
            raise ValueError(f"{text!r} is not ROLE=GROUP or ROLE/PIPE=GROUP with one of {', '.join(Role)}")
        return cls(Role(role), pipe or None, group)


def _read_roles(value: object) -> object:
    if not isinstance(value, str):
        return value
    return tuple(RoleGrant.read(grant_text.strip()) for grant_text in value.split(",") if grant_text.strip())


class OidcSettings(BaseSettings):
    """Sign-in on the consoles of observe and manage with an OpenID Connect provider."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="ignore", frozen=True)

    issuer: str = Field(
        "",
        pattern="^(https?://[^?#]+)?$",
        description="URL of the provider: `https`, or loopback.",
    )
    client_id: str = Field("", description="Client id; redirect URI: `URL/sign-in/oidc/callback`.")
    client_secret_file: Path | None = Field(None, description="File with its secret; empty: a public client.")
    roles: Annotated[tuple[RoleGrant, ...], NoDecode, BeforeValidator(_read_roles)] = Field(
        (),
        description="Roles, `ROLE[/PIPE]=GROUP,…`, such as `viewer=*,operator/orders=sales`; `*`: everybody.",
    )
    roles_claim: str = Field("groups", description="Claim with the groups, such as `realm_access.roles`.")
    name_claim: str = Field(
        "sub",
        description="Claim that names people; it must be one that they cannot change.",
    )
    scopes: str = Field("openid profile email", description="Scopes to ask for.")
    session_s: float = Field(
        0,
        ge=0,
        le=7 * 86400,
        description="Length of a session; 0: that of the id token, at most 12 h.",
    )
    ca_file: Path | None = Field(None, description="Its certificate authorities; default: the system's.")

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if not self.issuer:
            return self
        if not self.client_id or not self.roles:
            raise ValueError(f"{PREFIX}ISSUER needs {PREFIX}CLIENT_ID and {PREFIX}ROLES")
        if "openid" not in self.scopes.split():
            raise ValueError(f"{PREFIX}SCOPES: `openid` is missing")
        if self.issuer.startswith("http:") and not is_loopback(self.issuer):
            raise ValueError(f"{PREFIX}ISSUER: use https; http is for a provider on loopback only")
        return self

    def read_client_secret(self) -> str:
        """The client's secret, as its file has it now; empty: there is none.

        Raises:
            Misconfigured: the file cannot be read.
        """
        return read_secret(self.client_secret_file, f"{PREFIX}CLIENT_SECRET_FILE")


def is_loopback(url: str) -> bool:
    """Whether the host of a URL is `localhost` or a loopback address."""
    host, _ = host_and_port(url)
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
