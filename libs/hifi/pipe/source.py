"""The declaration of a pipe's source: who may send events, in which formats, how many, and what is masked at once."""

from enum import StrEnum

from pydantic import Field, model_validator

from hifi.pipe.mask import SourceMask
from hifi.pipe.secret import Quota, WriteKey
from hifi.pipe.strict_model import StrictModel
from hifi.units import FieldPath


class Format(StrEnum):
    """Formats of events that a sender may use."""

    CLOUDEVENTS = "cloudevents"
    JSON = "json"


class Source(StrictModel):
    """How senders authenticate, and how their events are read."""

    keys: list[WriteKey] = Field(min_length=1, description="Write keys; a sender needs one of them.")
    formats: list[Format] = Field(
        default=[Format.CLOUDEVENTS, Format.JSON], min_length=1, description="Accepted formats."
    )
    type: str = Field(
        "hifi.event", min_length=1, description="CloudEvents `type` of events sent as plain JSON."
    )
    id: FieldPath | None = Field(
        None,
        description="Field of plain JSON with the event's id; default: from `Idempotency-Key`, else a new UUIDv7.",
    )
    time: FieldPath | None = Field(
        None,
        description="Field of plain JSON with the event's time (RFC 3339); default: the accepted time.",
    )
    partition_key: FieldPath | None = Field(
        None, description="Field of plain JSON whose events keep their order; default: the event's id."
    )
    quota: Quota | None = Field(
        None, description="Largest rates of the pipe, whatever the key; default: no limit."
    )
    mask: SourceMask | None = Field(
        None,
        description="Sensitive data that no topic may hold. Masked by ingest, which needs the keys of hashes; default:"
        " nothing.",
    )

    @model_validator(mode="after")
    def _nothing_masked_becomes_an_attribute(self) -> "Source":
        mask = self.mask
        if mask is None:
            return self
        for name, path in (("id", self.id), ("time", self.time), ("partition_key", self.partition_key)):
            masked = path is not None and any(f"{path}.".startswith(f"{each}.") for each in mask.data)
            if masked and not (name == "partition_key" and "partitionkey" in mask.attributes):
                hint = ", or hash the attribute partitionkey, too" if name == "partition_key" else ""
                raise ValueError(
                    f"{name} is the field {path}, which `mask` masks, and would be kept as an attribute: choose another"
                    f" field{hint}"
                )
        return self
