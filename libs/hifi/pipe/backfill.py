"""The declaration of how fast a source is read while collect catches up with it."""

from pydantic import Field

from hifi.pipe.strict_model import StrictModel
from hifi.units import PerSecond, Seconds


class Backfill(StrictModel):
    """The rate of events that were in a source before they could be read, such as a snapshot. New events have none."""

    rate: PerSecond = Field(
        2000,
        ge=1,
        description="Largest rate of the backfill over all instances of collect, such as `2000/s`, at least `1/s`. It"
        " is lower while the mesh is late.",
    )
    after: Seconds = Field(
        60,
        description="An event that was in the source for longer when it is read, such as `1m`, is backfill, unless the"
        " reader has caught up. Rows of a snapshot always are.",
    )
