"""The keys that the declarations of all sources that collect reads have in common."""

from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar

from pydantic import Field

from hifi.pipe.mask import SourceMask
from hifi.pipe.secret import Quota, WriteKey
from hifi.pipe.strict_model import StrictModel
from hifi.runtime.units import PerSecond, Seconds


class Format(StrEnum):
    """Formats of senders."""

    CLOUDEVENTS = "cloudevents"
    JSON = "json"


class Backfill(StrictModel):
    """The rate of a [backfill](sources.md#backfill)."""

    rate: PerSecond = Field(
        1000,
        ge=1,
        description="Largest rate over all instances of collect, at least `1/s`.",
    )
    after: Seconds = Field(
        60,
        description="Age from which an event is backfill when it is read.",
    )


class CollectedSource(StrictModel):
    """A source that collect reads."""

    keys: ClassVar[Sequence[WriteKey]] = ()
    formats: ClassVar[Sequence[Format]] = ()
    id: ClassVar[None] = None
    time: ClassVar[None] = None
    quota: ClassVar[Quota | None] = None
    mask: ClassVar[SourceMask | None] = None

    kind: str = Field(description="Kind.")
    backfill: Backfill = Field(Backfill(), description="Rate of what the source already has.")

    @property
    def written_topics(self) -> frozenset[tuple[str, str]]:
        """The Kafka topics that are written for this source, each with each bootstrap server of its cluster.

        Two servers are compared as texts; an empty one stands for the cluster of the stream's own Kafka Connect.
        """
        return frozenset()

    def identifying(self) -> list[tuple[str, str]]:
        """Setting and path of each field whose values are in the ids or the record keys of events."""
        path = getattr(self, "partition_key", None)
        return [] if path is None else [("partition_key", str(path))]
