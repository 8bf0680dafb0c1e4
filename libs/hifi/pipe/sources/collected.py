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
        description="Largest rate of the backfill over all instances of collect, such as `2000/s`, at least `1/s`. It"
        " is lower while the mesh is late or CPU time is scarce.",
    )
    after: Seconds = Field(
        60,
        description="An event that was in the source for longer when it is read, such as `1m`, is backfill, unless the"
        " reader has caught up. Rows of a snapshot always are.",
    )


class CollectedSource(StrictModel):
    """A source that collect reads. It has nothing of what only senders over HTTP need."""

    keys: ClassVar[Sequence[WriteKey]] = ()
    formats: ClassVar[Sequence[Format]] = ()
    id: ClassVar[None] = None
    time: ClassVar[None] = None
    quota: ClassVar[Quota | None] = None
    mask: ClassVar[SourceMask | None] = None

    backfill: Backfill = Field(
        Backfill(), description="How fast what the source already has is read; new events have no limit."
    )
