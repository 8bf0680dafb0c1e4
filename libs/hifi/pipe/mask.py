"""The declaration of masks: what to do with sensitive fields and attributes."""

from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints, model_validator

from hifi.pipe.secret import Secret
from hifi.pipe.strict_model import StrictModel
from hifi.runtime.units import FieldPath


class KeyedHash(StrictModel):
    """HMAC-SHA256 of the value with a secret key, lower-case hex."""

    hash: Secret = Field(description="The key.")


Mask = Literal["drop", "redact"] | KeyedHash
_UNMASKED: Final = frozenset({"specversion", "id", "source", "type", "time", "datacontenttype"})
AttributeName = Annotated[str, StringConstraints(pattern="^[a-z0-9]{1,128}$")]


class SourceMask(StrictModel):
    """What ingest masks before anything is stored."""

    data: dict[FieldPath, Mask] = Field(
        default={},
        description="Field, and its mask, in arrays too. Data must be a JSON object.",
    )
    attributes: dict[AttributeName, Mask] = Field(
        default={},
        description="CloudEvents attribute, and its mask. `subject` and `partitionkey` can only be hashed.",
    )

    @model_validator(mode="after")
    def _maskable(self) -> "SourceMask":
        if refused := sorted(_UNMASKED.intersection(self.attributes)):
            raise ValueError(f"attributes names {refused}, which every event needs; they cannot be masked")
        for name in ("subject", "partitionkey"):
            if self.attributes.get(name) in ("drop", "redact"):
                raise ValueError(f"attributes.{name} can only be hashed: it decides the order of events")
        return self
