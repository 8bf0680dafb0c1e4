"""What the declarations of all sources that collect reads have in common."""

from collections.abc import Sequence
from enum import StrEnum
from typing import ClassVar

from hifi.pipe.mask import SourceMask
from hifi.pipe.secret import Quota, WriteKey
from hifi.pipe.strict_model import StrictModel


class Format(StrEnum):
    """Formats of events that a sender may use."""

    CLOUDEVENTS = "cloudevents"
    JSON = "json"


class CollectedSource(StrictModel):
    """A source that collect reads. It has nothing of what only senders over HTTP need."""

    keys: ClassVar[Sequence[WriteKey]] = ()
    formats: ClassVar[Sequence[Format]] = ()
    id: ClassVar[None] = None
    time: ClassVar[None] = None
    quota: ClassVar[Quota | None] = None
    mask: ClassVar[SourceMask | None] = None
