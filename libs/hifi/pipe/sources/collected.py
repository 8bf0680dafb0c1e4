"""What the declarations of all sources that collect reads have in common."""

from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from hifi.pipe.mask import SourceMask
from hifi.pipe.secret import Quota, WriteKey
from hifi.pipe.strict_model import StrictModel
from hifi.runtime.units import PerSecond, Seconds


class Format(StrEnum):
    """Formats of events that a sender may use."""

    CLOUDEVENTS = "cloudevents"
    JSON = "json"


class Backfill(StrictModel):
    """The rate of events that were in a source before they could be read, such as a snapshot. New events have none."""

    rate: PerSecond = Field(
        1000,
        ge=1,
        description="Largest rate of the backfill over all instances of collect, at least `1/s`.",
    )
    after: Seconds = Field(
        60,
        description="Age from which an event is backfill when it is read.",
    )


class CollectedSource(StrictModel):
    """What sources that collect reads have in common; they have nothing that only HTTP senders need."""

    keys: ClassVar[Sequence[WriteKey]] = ()
    formats: ClassVar[Sequence[Format]] = ()
    id: ClassVar[None] = None
    time: ClassVar[None] = None
    quota: ClassVar[Quota | None] = None
    mask: ClassVar[SourceMask | None] = None

    kind: str = Field(description="Kind.")
    backfill: Backfill = Field(Backfill(), description="Rate at which what the source already has is read.")
