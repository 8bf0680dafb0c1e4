"""The interface of a destination for the contract suite."""

from collections import Counter
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol


class KindUnderTest(Protocol):
    """A destination of one kind that keeps the `number` of the newest event of each `key`."""

    upserts: bool = True
    """It keeps the newest event of a key, and not all of them."""
    refusal: str = "not-json"
    """The reason of the dead letter of an event whose data is not JSON and that has no subject."""

    def declared(self, **overrides: Any) -> dict[str, Any]:
        """The destination `d` in a pipe."""

    async def rows(self) -> dict[str, int]:
        """The numbers by event key."""

    async def history(self) -> list[tuple[str, int]]:
        """Key and number of what was written, in its order; of a table, its rows."""
        return list((await self.rows()).items())

    def locked(self) -> AbstractAsyncContextManager[None]:
        """Nothing can be written while the block runs."""


class EventLog(KindUnderTest):
    """A destination whose events a reader finds in the order in which they arrived, each one once."""

    upserts = False

    async def rows(self) -> dict[str, int]:
        history = await self.history()
        assert not [pair for pair, count in Counter(history).items() if count > 1], "an event is there twice"
        return {key: max(number for event_key, number in history if event_key == key) for key, _ in history}
