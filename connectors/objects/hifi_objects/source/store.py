"""Interface of a folder or a bucket for a reader."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import BinaryIO, NamedTuple, Protocol

from hifi_objects.source.version import ObjectVersion


class OpenObject(NamedTuple):
    """An object that is open."""

    file: BinaryIO
    """Its content, from the beginning."""
    check: Callable[[], None]
    """Raises `ObjectGone` if what was read so far may not be of the version that was opened. It may block."""


class ReadableStore(Protocol):
    """A folder or a bucket."""

    @property
    def name(self) -> str:
        """Name, for events and for the progress of the source."""

    @property
    def url(self) -> str:
        """URL, for the attribute `source` of events."""

    @property
    def problems(self) -> list[str]:
        """Problems of the last listing, each as a sentence: files and folders that could not be looked at."""

    async def listed(self) -> list[ObjectVersion]:
        """All objects.

        Raises:
            Retryable: it does not answer, or does not exist.
            Misconfigured: it has more objects than are read.
        """

    def refusal(self, version: ObjectVersion) -> str | None:
        """The reason why an object cannot be read because of its name; None: it can."""

    def opened(self, version: ObjectVersion) -> AbstractAsyncContextManager[OpenObject]:
        """Open a version.

        Raises:
            ObjectGone: there is no such version any more.
            ObjectRefused: it may not be read, others may.
            ObjectUnreadable: it cannot be read now.
            Retryable: the store does not answer.
        """
