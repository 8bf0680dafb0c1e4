"""Settings of a bucket, for sources and destinations. Imports no client, so that pipes can be checked without it."""

from typing import Annotated

from pydantic import Field, StringConstraints

from hifi.pipe.secret import Secret
from hifi.pipe.strict_model import StrictModel

Prefix = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9._=-]+/)*[A-Za-z0-9._=-]+$")]


class S3Settings(StrictModel):
    """A bucket of an S3-compatible server."""

    bucket: str = Field(min_length=1, description="Existing bucket.")
    prefix: Prefix | None = Field(None, description="Prefix of keys, such as `events/raw`.")
    endpoint: str | None = Field(
        None, pattern=r"^https?://\S+$", description="URL of the server; default: AWS."
    )
    region: str = Field("us-east-1", min_length=1, description="Region.")
    access_key: Secret = Field(description="Access key ID.")
    secret_key: Secret = Field(description="Secret access key.")
