"""The senders of a lane: one for each way in which the revisions of its pipe in use declare the destination."""

from collections.abc import Callable, Iterable, Mapping

from hifi.delivery.sender import Sender
from hifi.pipe.model import Destination
from hifi.record.identity import identity
from hifi_egest.delivery.delivery import Delivery, OutboundRequest


class LaneSenders:
    """Makes, chooses and stops senders. Only a rollout, or one that has just ended, has more than one."""

    def __init__(
        self, make: Callable[[Destination], Sender[OutboundRequest]], destination: Destination
    ) -> None:
        """Make the first sender.

        Args:
            make: makes the sender of a declaration.
            destination: as declared.
        """
        self._make = make
        self._declared: dict[int, Destination] = {}
        self._of_revision: dict[int, Sender[OutboundRequest]] = {}
        self.current = make(destination)

    @property
    def several(self) -> bool:
        """Whether not all revisions in use have the sender `current`."""
        return bool(self._of_revision)

    async def stop_current(self) -> None:
        """Stop the sender of the declaration in force; `replace_current` follows."""
        await self.current.stop()

    def replace_current(self, destination: Destination) -> None:
        """Make the sender of a new declaration."""
        self.current = self._make(destination)

    def replace_revisions(
        self, declared: Mapping[int, Destination], current: Destination
    ) -> list[Sender[OutboundRequest]]:
        """Set what the revisions declare; returns the senders that are no longer needed, for `stop_senders`.

        Args:
            declared: revision to its destination.
            current: the destination as the current revision declares it; revisions that declare the same need no
                sender.
        """
        different = {
            revision: destination for revision, destination in declared.items() if destination != current
        }
        removed = [
            revision
            for revision, destination in self._declared.items()
            if different.get(revision) != destination
        ]
        stopped = [self._of_revision.pop(revision) for revision in removed]
        self._declared = different
        for revision, destination in different.items():
            if revision not in self._of_revision:
                self._of_revision[revision] = self._make(destination)
        return stopped

    async def stop(self) -> None:
        """Stop all senders."""
        await stop_senders([self.current, *self._of_revision.values()])

    def sweep(self) -> None:
        """Close connections that were idle for too long."""
        self.current.sweep()
        for sender in self._of_revision.values():
            sender.sweep()

    def choose(self, request: OutboundRequest) -> tuple[Sender[OutboundRequest], int]:
        """The sender of a request's first delivery, and how many deliveries from the first on have the same one."""
        senders = [
            self._of_revision.get(_revision(delivery), self.current) for delivery in request.deliveries
        ]
        same = next((at for at, sender in enumerate(senders) if sender is not senders[0]), len(senders))
        return (senders[0] if senders else self.current), same


def _revision(delivery: Delivery) -> int:
    return identity(delivery.event.record.headers).revision


async def stop_senders(senders: Iterable[Sender[OutboundRequest]]) -> None:
    """Close their connections, as soon as requests in flight are finished, and stop reading their secrets."""
    for sender in senders:
        await sender.stop()
