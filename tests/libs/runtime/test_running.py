"""Services start their parts in order and stop them in reverse, whatever happens."""

import asyncio
from collections.abc import Callable

import pytest

from hifi.runtime.health import Health
from hifi.runtime.lifetime import Lifetime
from hifi.runtime.running import StoppedBeforeStart, running


class Part:
    """A client that writes down what happens to it."""

    def __init__(self, name: str, events: list[str], during: Callable[[], None] = lambda: None) -> None:
        self.name = name
        self.events = events
        self.during = during
        self.task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        self.during()
        await asyncio.sleep(0)
        self.events.append(f"start {self.name}")

    async def stop(self) -> None:
        self.events.append(f"stop {self.name}")


class Dying(Part):
    """A client whose background task fails."""

    async def start(self) -> None:
        self.task = asyncio.create_task(self._die())

    async def _die(self) -> None:
        await asyncio.sleep(0.01)
        raise LookupError("a record that nobody can read")


def lifetime() -> Lifetime:
    return Lifetime(Health("test", "test-1"))


async def test_parts_start_in_order_and_stop_in_reverse() -> None:
    events: list[str] = []
    async with running(lifetime(), Part("a", events), Part("b", events)):
        events.append("run")
    assert events == ["start a", "start b", "run", "stop b", "stop a"]


async def test_after_a_stop_during_the_start_nothing_else_is_started() -> None:
    service = lifetime()
    events: list[str] = []
    with pytest.raises(StoppedBeforeStart):
        async with running(service, Part("a", events), Part("b", events, service.stop), Part("c", events)):
            events.append("run")
    assert events == ["start a", "start b", "stop b", "stop a"]


async def test_a_part_that_waits_for_ever_is_cancelled_by_the_stop() -> None:
    service = lifetime()
    events: list[str] = []

    class Waiting(Part):
        async def start(self) -> None:
            service.stop()
            await asyncio.Event().wait()

    with pytest.raises(StoppedBeforeStart):
        async with asyncio.timeout(5), running(service, Part("a", events), Waiting("b", events)):
            events.append("run")
    assert events == ["start a", "stop b", "stop a"]


async def test_a_failed_start_stops_what_had_started() -> None:
    events: list[str] = []

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        async with running(lifetime(), Part("a", events), Part("b", events, fail)):
            events.append("run")
    assert events == ["start a", "stop b", "stop a"]


async def test_the_service_ends_with_the_error_of_a_client_s_task() -> None:
    service = lifetime()
    events: list[str] = []
    with pytest.raises(LookupError, match="nobody can read"):
        async with running(service, Part("a", events), Dying("b", events)), asyncio.timeout(5):
            await service.stopping.wait()
    assert events == ["start a", "stop b", "stop a"]


async def test_the_service_ends_with_the_error_of_work_beside_it() -> None:
    service = lifetime()
    events: list[str] = []
    finished = asyncio.Event()

    async def fail() -> None:
        raise LookupError("beside")

    async def forever() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            finished.set()

    with pytest.raises(LookupError, match="beside"):
        async with running(service, Part("a", events), background_work=[forever, fail]), asyncio.timeout(5):
            await service.stopping.wait()
    assert events == ["start a", "stop a"]
    assert finished.is_set(), "work beside the service is cancelled before the clients stop"


async def test_what_runs_beside_ends_before_the_clients() -> None:
    events: list[str] = []

    async def beside() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            events.append("end beside")

    async with running(lifetime(), Part("a", events), background_work=[beside]):
        await asyncio.sleep(0)
    assert events == ["start a", "end beside", "stop a"]


async def test_a_cancelled_service_stops_its_parts() -> None:
    events: list[str] = []

    async def serve() -> None:
        async with running(lifetime(), Part("a", events)):
            await asyncio.Event().wait()

    task = asyncio.create_task(serve())
    await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert events == ["start a", "stop a"]
