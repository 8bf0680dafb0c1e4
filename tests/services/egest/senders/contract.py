"""What the contract suite needs of a kind of destinations."""

from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol


class KindUnderTest(Protocol):
    """A destination of one kind that keeps one row for each event key."""

    def declared(self, **more: Any) -> dict[str, Any]:
        """The destination `d` in a pipe."""

    async def rows(self) -> dict[str, Any]:
        """The data by event key."""

    def locked(self) -> AbstractAsyncContextManager[None]:
        """Nothing can be written while the block runs."""
