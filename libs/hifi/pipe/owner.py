"""The owner of a pipe."""

from pydantic import Field, model_validator

from hifi.pipe.endpoint_url import EndpointUrl
from hifi.pipe.strict_model import StrictModel


class Owner(StrictModel):
    """Who is notified of problems that only they can repair."""

    webhook: EndpointUrl | None = Field(None, description="URL for notices.")
    email: str | None = Field(
        None,
        pattern=r"^[^@\s,;<>]+@[^@\s,;<>]+$",
        max_length=254,
        description="Address of one mailbox.",
    )

    @model_validator(mode="after")
    def _one_address(self) -> "Owner":
        if self.webhook is None and self.email is None:
            raise ValueError("set `webhook`, `email` or both")
        return self
