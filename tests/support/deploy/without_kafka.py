"""A deployer without Kafka: each action is taken at once if the rules allow it, and nothing is written."""

from collections.abc import Awaitable, Callable

from hifi.control.action import Action, ActionHistory
from hifi.control.action_right import ActionRefused, ActionRight
from hifi.control.permission import Permission
from hifi.kafka.fenced_writer import FencedWriter


class ImmediateRight(ActionRight):
    """Takes an action at once if the rules allow it."""

    def __init__(self) -> None:
        self.summaries: list[str] = []

    async def take(
        self,
        action: Action,
        allowed: Callable[[ActionHistory], Permission],
        change: Callable[[int], Awaitable[None]],
    ) -> None:
        """As `ActionRight.take`; tokens begin at 1."""
        permission = allowed(ActionHistory())
        if not permission.granted:
            raise ActionRefused(permission.reason)
        self.summaries.append(action.step)
        await change(len(self.summaries))


class ForgetfulWriter(FencedWriter):
    """Writes nowhere: the deployer remembers what it wrote."""

    def __init__(self) -> None:
        pass

    async def write(self, topic: str, records: object) -> int:
        """As `FencedWriter.write`."""
        del topic, records
        return 0
