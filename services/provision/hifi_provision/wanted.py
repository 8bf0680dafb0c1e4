"""What people want of pipes: declarations, requests, and what became of them."""

from collections import defaultdict
from collections.abc import Mapping

from hifi.control import request, rollout_status
from hifi.control.declaration import Declaration, Declarations
from hifi.control.request import Request
from hifi.control.rollout_status import RolloutStatus


class Wanted:
    """What people declared and asked for, and what became of it. Filled from the control plane's topics."""

    def __init__(self) -> None:
        self._declared = Declarations()
        self.statuses: dict[str, RolloutStatus] = {}
        """Pipe to the status that was written last."""
        self._requests: defaultdict[str, list[Request]] = defaultdict(list)

    @property
    def declarations(self) -> Mapping[str, Declaration]:
        """Pipe to its newest declaration."""
        return self._declared.newest

    @property
    def settled(self) -> bool:
        """Whether every declaration has an end."""
        return all(
            (status := self.statuses.get(name)) is not None
            and status.state.final
            and status.declaration == one.pipe_number
            for name, one in self.declarations.items()
        )

    def take_declaration(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        """Take in a record of the topic `declared`."""
        self._declared.take(key, value, offset)

    def take_request(self, _: bytes | None, value: bytes | None, __: int) -> None:
        """Take in a record of the topic `requests`."""
        found = request.decode(value)
        self._requests[found.scope].append(found)

    def take_status(self, _: bytes | None, value: bytes | None, __: int) -> None:
        """Take in a record of the topic `rollouts`."""
        found = rollout_status.decode(value)
        self.statuses[found.pipe] = found

    def requests(self, pipe: str) -> list[Request]:
        """All requests about a pipe, in their order."""
        return self._requests[f"pipe/{pipe}"]
