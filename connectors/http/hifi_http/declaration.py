"""Declaration of HTTP destinations. Imports no client."""

from typing import Literal

from pydantic import Field, model_validator

from hifi.pipe.endpoint_url import EndpointUrl
from hifi.pipe.model import Destination
from hifi.pipe.secret import Secret


class HeaderSecret(Secret):
    """A header whose value is a secret."""

    prefix: str = Field("", description="Text before it, such as `Bearer `.")


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

    @model_validator(mode="after")
    def _signed(self) -> "HttpDestination":
        if self.signing_also and self.signing is None:
            raise ValueError("`signing_also` needs `signing`: declare the key that stays there")
        return self
