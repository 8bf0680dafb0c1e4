"""Interface of a folder or a bucket for a writer."""

from collections.abc import Callable
from typing import Protocol


class ObjectStore(Protocol):
    """Keeps objects under paths such as `pipe=orders/date=2026-11-24/hour=03/NAME`. An object never changes."""

    async def read(self, path: str) -> bytes | None:
        """The content of an object, durable from now on; None: it does not exist.

        Raises:
            Retryable: the store does not answer, or refuses it.
        """

    async def create(self, path: str, encode: Callable[[], bytes]) -> bool:
        """Create an object, durably, unless one of this path exists.

        Args:
            path: of the object.
            encode: makes the content; it takes a while, and runs in another thread.

        Returns:
            Whether it was created now.

        Raises:
            Unacknowledged, OSError: it is not known whether it was created.
            Retryable: it was not created.
        """
