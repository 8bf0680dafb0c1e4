"""A deployer without Kafka: each step is taken at once if the rules allow it, and nothing is written."""

from collections.abc import Awaitable, Callable

from hifi.control.action import Action, ActionHistory
from hifi.control.permission import Permission
from hifi.control.steps import StepRefused, StepRight
from hifi.kafka.fenced_writer import FencedWriter


class ImmediateRight(StepRight):
    """Takes a step at once if the rules allow it."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    async def take(
        self,
        action: Action,
        allowed: Callable[[ActionHistory], Permission],
        change: Callable[[int], Awaitable[None]],
    ) -> None:
        """As `StepRight.take`; tokens begin at 1."""
        permission = allowed(ActionHistory())
        if not permission.granted:
            raise StepRefused(permission.reason)
        self.steps.append(action.step)
        await change(len(self.steps))


class ForgetfulWriter(FencedWriter):
    """Writes nowhere: the deployer remembers what it wrote."""

    def __init__(self) -> None:
        pass

    async def write(self, topic: str, records: object) -> int:
        """As `FencedWriter.write`."""
        del topic, records
        return 0
