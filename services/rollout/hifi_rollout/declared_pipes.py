"""Declarations of pipes, requests about their rollouts, and the status of each rollout."""

from collections import defaultdict
from collections.abc import Mapping

from hifi.control import request, rollout_status
from hifi.control.declaration import Declaration, Declarations
from hifi.control.request import Request, Wishes, wishes
from hifi.control.rollout_status import RolloutStatus
from hifi.kafka.topic_follower import Take
from hifi.kafka.topics import ControlTopics


class DeclaredPipes:
    """The declared pipes with requests and statuses, from the control plane's topics."""

    def __init__(self) -> None:
        self._declared = Declarations()
        self.statuses: dict[str, RolloutStatus] = {}
        """Pipe to the status that was written last."""
        self._requests: defaultdict[str, list[Request]] = defaultdict(list)

    @property
    def declarations(self) -> Mapping[str, Declaration]:
        """Pipe to its newest declaration."""
        return self._declared.newest

    def unreadable(self, name: str) -> str | None:
        """The reason why the newest declaration of a pipe cannot be read; None: it can."""
        return self._declared.unreadable.get(name)

    @property
    def settled(self) -> bool:
        """Whether the rollout of every declaration has ended."""
        return all(self.status(declaration, final=True) for declaration in self.declarations.values())

    def status(self, declaration: Declaration, *, final: bool = False) -> RolloutStatus | None:
        """The status of a declaration.

        Args:
            declaration: the newest one of its pipe.
            final: only a status of a rollout that has ended.

        Returns:
            None: there is none yet; the pipe's status may be that of an earlier declaration.
        """
        status = self.statuses.get(declaration.name)
        if status is None or status.declaration != declaration.pipe_number:
            return None
        return status if status.state.final or not final else None

    def wishes(self, declaration: Declaration) -> Wishes:
        """The requests of people about a declaration."""
        return wishes(self._requests[f"pipe/{declaration.name}"], declaration.pipe_number)

    def handlers(self, topics: ControlTopics) -> dict[str, Take]:
        """Topic to the handler of its records."""
        return {
            topics.declared: self.take_declaration,
            topics.requests: self.take_request,
            topics.rollouts: self.take_status,
        }

    def take_declaration(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        """Take in a record of the topic `declared`."""
        self._declared.take(key, value, offset)

    def take_request(self, _: bytes | None, value: bytes | None, __: int) -> None:
        """Take in a record of the topic `requests`."""
        decoded = request.decode(value)
        self._requests[decoded.scope].append(decoded)

    def take_status(self, _: bytes | None, value: bytes | None, __: int) -> None:
        """Take in a record of the topic `rollouts`."""
        status = rollout_status.decode(value)
        self.statuses[status.pipe] = status
