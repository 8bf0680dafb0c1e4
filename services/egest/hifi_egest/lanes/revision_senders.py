"""Senders of the revisions of a pipe that declare a destination in another way than its current revision does."""

from collections.abc import Callable, Iterable, Mapping

from hifi.pipe.model import Destination
from hifi.record.event import identity
from hifi_egest.delivery.delivery import Delivery
from hifi_egest.delivery.outbound_request import OutboundRequest
from hifi_egest.senders.sender import Sender


class RevisionSenders:
    """Holds the senders of a lane for other revisions; there are none unless a rollout runs or has just ended.

    Args:
        make: makes the sender of a declaration.
    """

    def __init__(self, make: Callable[[Destination], Sender]) -> None:
        self._make = make
        self._declared: dict[int, Destination] = {}
        self._senders: dict[int, Sender] = {}

    def __bool__(self) -> bool:
        return bool(self._senders)

    def replace(self, declared: Mapping[int, Destination], current: Destination) -> list[Sender]:
        """Set what the revisions declare; returns the senders that are no longer needed, for `stop_senders`.

        Args:
            declared: revision to its destination.
            current: the destination as the current revision declares it; revisions that declare the same need no
                sender.
        """
        wanted = {revision: one for revision, one in declared.items() if one != current}
        gone = [revision for revision, one in self._declared.items() if wanted.get(revision) != one]
        stopped = [self._senders.pop(revision) for revision in gone]
        self._declared = wanted
        for revision, one in wanted.items():
            if revision not in self._senders:
                self._senders[revision] = self._make(one)
        return stopped

    async def stop(self) -> None:
        """Stop all senders."""
        await stop_senders(self._senders.values())

    def sweep(self) -> None:
        """Close connections that were idle for too long."""
        for sender in self._senders.values():
            sender.sweep()

    def choose(self, request: OutboundRequest, current: Sender) -> tuple[Sender, int]:
        """The sender of a request's first delivery, and how many deliveries from the first on have the same one."""
        senders = [self._senders.get(_revision(one), current) for one in request.deliveries]
        same = next((at for at, one in enumerate(senders) if one is not senders[0]), len(senders))
        return (senders[0] if senders else current), same


def _revision(delivery: Delivery) -> int:
    return identity(delivery.event.record.headers).revision


async def stop_senders(senders: Iterable[Sender]) -> None:
    """Close their connections, as soon as requests in flight are finished, and stop reading their secrets."""
    for sender in senders:
        await sender.stop()
