"""A version of an object, which is read as a whole, and never again; `bucket.py` makes it of time and ETag."""

import base64
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from hifi.runtime.errors import HifiError, Retryable

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def shown(path: str) -> str:
    """A path in which bytes that are no UTF-8 and control characters are written in hexadecimal."""
    text = path.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


class ObjectVersion(NamedTuple):
    """An object with the content that it had when it was listed."""

    path: str
    """Below the folder or prefix."""
    version: str
    """Another one if the object was written again: its time and size, or time and ETag."""
    size: int
    """Bytes."""
    modified_us: int
    """Time of the last change, microseconds since 1970 UTC."""

    @property
    def shown_path(self) -> str:
        """The path for ids and reasons: bytes that are no UTF-8 and control characters are written in hexadecimal."""
        return shown(self.path)

    @classmethod
    def read(cls, entry: Sequence[Any]) -> "ObjectVersion":
        """The version that `entry` has written."""
        path, *fields = entry
        return cls(
            path if isinstance(path, str) else base64.b64decode(path[0]).decode(errors="surrogateescape"),
            *fields,
        )

    def entry(self) -> list[Any]:
        """The version as JSON, which has no path that is not UTF-8."""
        path: Any = self.path
        try:
            path.encode()
        except UnicodeEncodeError:
            path = [base64.b64encode(path.encode(errors="surrogateescape")).decode()]
        return [path, *self[1:]]


class ObjectRefused(HifiError):
    """This object may not be read, such as for want of permission: go on with the next one, and try again later."""


class ObjectUnreadable(Retryable):
    """The object cannot be read now: if the store answers and it fails again, go on as with one that is refused."""


class ObjectGone(HifiError):
    """The object was removed or written again: leave this version, and go on with the next object."""
