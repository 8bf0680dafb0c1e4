"""The release that somebody wants a service to run. Pure."""

from dataclasses import asdict, dataclass, field
from typing import Annotated, Final

import orjson
from pydantic import Field

from hifi.record.record import Record
from hifi.record.typed_body import RecordBodyReader

INSTALLED: Final = "installed"
"""The release that instances run when none was deployed: the environment of the process that starts them."""
DEPLOYABLE: Final = ("ingest", "normalize", "egest", "retrier", "observe")
"""Services with instances that share their work, so that a new release can be judged beside the one before."""


@dataclass(frozen=True, slots=True)
class DesiredRelease:
    """The wanted release of one service.

    Attributes:
        service: its name.
        release: as the executor names it: a folder with an environment, the tag of an image, or `installed`.
        author: who wants it, for people.
        at_us: when, microseconds since 1970 UTC.
        batch: instances that are replaced after the canary before the deployment waits again.
        number: offset of its record in the topic `releases`, larger for each later one; -1 before it is written.
    """

    service: str
    release: str
    author: str
    at_us: int
    batch: Annotated[int, Field(ge=1)] = 1
    number: int = field(default=-1, compare=False)

    def record(self) -> Record:
        """The record for the topic `releases`."""
        body = {name: value for name, value in asdict(self).items() if name != "number"}
        return Record(self.service.encode(), orjson.dumps(body), [])


_RELEASE: Final = RecordBodyReader(DesiredRelease, "a desired release")


def decode(value: bytes | None, offset: int) -> DesiredRelease:
    """A desired release from the value of a record at an offset.

    Raises:
        ValueError: it is not the record of a desired release.
    """
    return _RELEASE.of_value(value, offset, number=offset)
