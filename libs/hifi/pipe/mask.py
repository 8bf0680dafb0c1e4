"""The declaration of masks: what to do with sensitive fields and attributes."""

import re
import unicodedata
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from hifi.pipe.secret import Secret
from hifi.pipe.strict_model import StrictModel


class KeyedHash(StrictModel):
    """HMAC-SHA256 of the value with a secret key, lower-case hex."""

    hash: Secret = Field(description="The key.")


Mask = Literal["drop", "redact"] | KeyedHash
MASK_UNAVAILABLE: Final = "mask-unavailable"
"""Reason of a dead letter without data: a mask could not be applied. The event is in `raw` at the offset it names."""
_UNMASKED: Final = frozenset({"specversion", "id", "source", "type", "time", "datacontenttype"})


def composed(path: str) -> str:
    """The form of a path in which masks compare it with others: Unicode's NFC."""
    return unicodedata.normalize("NFC", path)


def covers(masked_path: str, path: str) -> bool:
    """Whether a mask of a path masks the whole value at another path."""
    return f"{composed(path)}.".startswith(f"{composed(masked_path)}.")


def _dotted(path: str) -> str:
    """Refuse other notations of paths, which would meet no field.

    Raises:
        ValueError: with the path to write instead, if there is one.
    """
    if path.startswith(("/", "$.", "$[")) or "[" in path:
        keys = re.sub(r"^\$|[\[\]/'\"]", ".", path).split(".")
        dotted_path = ".".join(key for key in keys if key)
        raise ValueError(
            f"the path {path!r} of a mask is written with dots: {dotted_path!r}; arrays need no index"
        )
    return path


MaskPath = Annotated[str, StringConstraints(pattern=r"^[^.\s](.*\S)?$"), AfterValidator(_dotted)]
"""Field, with dots into nested objects; names may have spaces inside."""
AttributeName = Annotated[str, StringConstraints(pattern="^[a-z0-9]{1,128}$")]


class SourceMask(StrictModel):
    """Masks that ingest applies before storage."""

    data: dict[MaskPath, Mask] = Field(
        default={},
        description="Field, and its mask, in arrays too; a name with dots is a path, too. Data must be a JSON object.",
    )
    attributes: dict[AttributeName, Mask] = Field(
        default={},
        description="CloudEvents attribute, and its mask. `subject` and `partitionkey` can only be hashed.",
    )

    @model_validator(mode="after")
    def _maskable(self) -> "SourceMask":
        if unmaskable_names := sorted(_UNMASKED.intersection(self.attributes)):
            raise ValueError(
                f"attributes names {unmaskable_names}, which every event needs; they cannot be masked"
            )
        for name in ("subject", "partitionkey"):
            if self.attributes.get(name) in ("drop", "redact"):
                raise ValueError(f"attributes.{name} can only be hashed: it decides the order of events")
        return self
