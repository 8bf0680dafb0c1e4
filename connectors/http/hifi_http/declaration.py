"""Declaration of HTTP destinations. Imports no client."""

from typing import Literal

from pydantic import Field, model_validator

from hifi.pipe.endpoint_url import EndpointUrl
from hifi.pipe.model import Destination
from hifi.pipe.secret import Secret
from hifi.pipe.strict_model import StrictModel
from hifi.runtime.units import Seconds


class HeaderSecret(Secret):
    """A header whose value is a secret."""

    prefix: str = Field("", description="Text before it, such as `Bearer `.")


class HttpTls(StrictModel):
    """TLS of an https endpoint, as PEM texts in secrets; one that is replaced is used for new connections."""

    ca: Secret | None = Field(None, description="Certificates to trust instead of the system's.")
    certificate: Secret | None = Field(None, description="Client certificate and its chain.")
    key: Secret | None = Field(None, description="Private key of the client certificate, not encrypted.")

    @model_validator(mode="after")
    def _complete(self) -> "HttpTls":
        if (self.certificate is None) != (self.key is None):
            raise ValueError("set `certificate` and `key` together")
        if self.ca is None and self.certificate is None:
            raise ValueError("set `ca`, or `certificate` and `key`")
        return self


class HttpProxy(StrictModel):
    """An HTTP proxy, which is asked to CONNECT to the endpoint."""

    url: EndpointUrl = Field(description="`http://HOST:PORT`.")
    user: str | None = Field(None, min_length=1, description="User, without `:`.")
    password: Secret | None = Field(None, description="Password of the user.")

    @model_validator(mode="after")
    def _usable(self) -> "HttpProxy":
        if self.url.scheme != "http" or self.url.path not in (None, "/") or self.url.query is not None:
            raise ValueError("`url` must be `http://HOST:PORT`, without path")
        if (self.user is None) != (self.password is None):
            raise ValueError("set `user` and `password` together")
        if self.user is not None and ":" in self.user:
            raise ValueError("`user` must not have a `:`, which ends it in HTTP's basic authentication")
        return self


class HttpOauth(StrictModel):
    """OAuth 2.0 access tokens by the client credentials grant, sent as `Authorization: Bearer`."""

    token_url: EndpointUrl = Field(description="Token endpoint, reached without `proxy`.")
    client_id: str = Field(min_length=1, description="Id of the client.")
    client_secret: Secret = Field(description="Secret of the client.")
    scope: str | None = Field(None, min_length=1, description="Scope to ask for.")


class HttpDestination(Destination):
    """An HTTP endpoint."""

    kind: Literal["http"] = Field("http", description="Kind.")
    url: EndpointUrl = Field(description="URL of the endpoint, without user and fragment.")
    method: Literal["POST", "PUT", "PATCH"] = Field("POST", description="HTTP method.")
    headers: dict[str, str | HeaderSecret] = Field(
        default={}, description="Header, and its value or a secret."
    )
    format: Literal["cloudevents-binary", "cloudevents-structured", "json"] = Field(
        "cloudevents-binary",
        description="CloudEvents in binary or structured mode, or the data alone.",
    )
    signing: Secret | None = Field(
        None, description="Key of Standard Webhooks signatures: `whsec_…`, or `whsk_…` for Ed25519."
    )
    signing_also: list[Secret] = Field(
        default=[],
        max_length=4,
        description="Further keys while one is replaced: requests have a signature of each.",
    )

    tls: HttpTls | None = Field(None, description="Authorities and client certificate of an https endpoint.")
    proxy: HttpProxy | None = Field(None, description="Proxy to connect through.")
    oauth: HttpOauth | None = Field(None, description="Access tokens.")
    watermark: Seconds | None = Field(
        None,
        ge=1,
        le=3600,
        description="Interval of events `hifi.watermark`; see [watermark](observe.md#events-for-destinations).",
    )

    def watermark_interval_s(self) -> float | None:
        """The declared interval, seconds; None: none."""
        return self.watermark

    @model_validator(mode="after")
    def _fits_together(self) -> "HttpDestination":
        if self.signing_also and self.signing is None:
            raise ValueError("`signing_also` needs `signing`: declare the key that stays there")
        if self.tls is not None and self.url.scheme != "https":
            raise ValueError("`tls` needs an https URL")
        if self.oauth is not None and any(name.lower() == "authorization" for name in self.headers):
            raise ValueError("`oauth` sets the header Authorization: remove it from `headers`")
        if self.watermark is not None and self.format == "json":
            raise ValueError(
                "`watermark` needs a CloudEvents `format`: with the data alone a watermark looks like an event"
            )
        return self
