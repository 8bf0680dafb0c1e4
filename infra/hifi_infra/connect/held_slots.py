"""Tells orphans of a worker of Kafka Connect from other programs that read a replication slot. Pure."""

import contextlib
from collections.abc import Iterator
from typing import Final, NamedTuple

import orjson

_HELD_SLOT: Final = "is active for PID"
"""In the status of a task whose replication slot another one reads."""
_FREE_S: Final = 300.0
"""A slot counts as free once no task has failed because of it for so long: a restarted task runs for seconds first."""
_AGAIN_S: Final = 6 * 3600.0
"""Least time between two replacements of a worker for the same slot, while that does not become free."""


class _HeldSlot(NamedTuple):
    """The slot of a connector for which the worker was replaced; monotonic times, seconds."""

    replaced_s: float
    seen_s: float
    """When it was last seen to be held."""


class HeldSlots:
    """Slots for which the worker was replaced.

    An orphan ends with its worker. What still holds a slot after a replacement is another program, which no further
    replacement would end, while each interrupts the connectors of other pipes.
    """

    def __init__(self) -> None:
        self._slots: dict[str, _HeldSlot] = {}

    def take(self, status: bytes, now_s: float) -> list[str]:
        """The connectors for whose slot the worker is to be replaced now.

        Args:
            status: answer of `/connectors?expand=status`.
            now_s: monotonic time, seconds.
        """
        self._slots = {name: slot for name, slot in self._slots.items() if now_s - slot.seen_s < _FREE_S}
        orphaned = list[str]()
        for name in _held(status):
            slot = self._slots.get(name)
            if slot is None or now_s - slot.replaced_s >= _AGAIN_S:
                orphaned.append(name)
                self._slots[name] = _HeldSlot(now_s, now_s)
            else:
                self._slots[name] = slot._replace(seen_s=now_s)
        return orphaned


def _held(status: bytes) -> Iterator[str]:
    """The connectors with a task that has failed since another one reads its slot."""
    with contextlib.suppress(orjson.JSONDecodeError):
        for name, connector in orjson.loads(status).items():
            tasks = connector.get("status", {}).get("tasks", [])
            if any(_HELD_SLOT in task.get("trace", "") for task in tasks):
                yield name
