"""A version of an object: what is read as a whole, and never again."""

from typing import NamedTuple

from hifi.runtime.errors import HifiError


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


class ObjectGone(HifiError):
    """The object was removed or written again: leave this version, and go on with the next object."""
