"""Brings about what the record of the colours says: the shares at the fronts, and which colours run.

It starts again what has died.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol

from aiokafka.errors import KafkaError

from hifi.control.action import ActionKind
from hifi.delivery.colours import WHOLE_SHARE, Colours, ColourSetup, ColourState, other
from hifi.runtime import log
from hifi.runtime.errors import HifiError, Misconfigured
from hifi_infra.colours.colour_log import ColourLog
from hifi_infra.colours.front import Front
from hifi_infra.colours.operations import ColourOperations

LOOP_S: Final = 0.5
_RESTART_S: Final = 5.0
"""Least time between two starts of a colour that ends."""
_KEYS_RETRY_S: Final = 5.0
"""Time after an attempt to copy write keys that has failed."""

logger = log.get(__name__)


class ColourRunner(Protocol):
    """Starts and ends the mesh of one colour."""

    async def is_running(self) -> bool:
        """Whether it runs.

        Raises:
            Retryable: it is not known now.
        """

    @property
    def was_started(self) -> bool:
        """Whether this process has seen it run, so that it has ended if it does not."""

    async def start(self, setup: ColourSetup, *, in_background: bool) -> None:
        """Start it on a setup; `in_background`: the other colour works, and nothing waits in this one."""

    async def stop(self) -> None:
        """Drain and end it."""

    async def adjust_priority(self, *, is_only: bool) -> None:
        """Give it the CPU time that is left until it is ready or no other colour runs, and then its full share."""


class ColourLoop:
    """Follows the record of the colours.

    Args:
        colour_log: started; has a record.
        runners: of the colours by name.
        fronts: that divide the requests.
        operations: makes the operations of the colours in the name of somebody.
        by: in whose name requests are taken from a colour that has ended.
    """

    def __init__(
        self,
        colour_log: ColourLog,
        runners: Mapping[str, ColourRunner],
        fronts: Sequence[Front],
        operations: Callable[[str], ColourOperations],
        actor: str,
    ) -> None:
        self._log = colour_log
        self._runners = runners
        self._fronts = fronts
        self._operations = operations
        self._actor = actor
        self._divided: dict[str, dict[str, int]] = {}
        self._started_s: dict[str, float] = {}
        self._slept: set[str] = set()
        """Colours that were asleep when they were last looked at."""
        self._stops: dict[str, asyncio.Task[None]] = {}
        """Colours that are being ended, which may take minutes."""
        self._key_copies: dict[str, asyncio.Task[None]] = {}
        """Colours that get the issued write keys of the other one."""

    @property
    def colours(self) -> Colours:
        """The newest record that was read."""
        assert self._log.newest is not None
        return self._log.newest

    async def bring_about(self) -> None:
        """Do what the record says, once. No front and no colour waits for another one, or for the end of a colour.

        Raises:
            HifiError: a front or a colour cannot be started or changed; all that can be done was done.
        """
        works = [*map(self._start_or_divide, self._fronts), self._start_and_stop_colours()]
        for problem in await asyncio.gather(*works, return_exceptions=True):
            if problem is not None:
                raise problem

    async def follow(self) -> None:
        """Do what the record says, again and again, until cancelled."""
        try:
            while True:
                await asyncio.sleep(LOOP_S)
                for step in (self.bring_about, self._catch_up):
                    try:
                        await step()
                    except (HifiError, KafkaError, OSError, TimeoutError) as error:
                        logger.warning("colours-wait", reason=str(error) or repr(error))
                    except Exception:
                        logger.exception("colours-failed")
        finally:
            tasks = [*self._stops.values(), *self._key_copies.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _catch_up(self) -> None:
        async with asyncio.timeout(10):
            await self._log.catch_up()

    async def _start_or_divide(self, front: Front) -> None:
        shares = self.colours.shares
        if not front.running:
            await front.start(shares)
            logger.info("front-started", url=front.url)
        elif self._divided.get(front.url) != shares:
            await front.divide(shares)
            logger.info("shares-changed", url=front.url, **shares)
        self._divided[front.url] = shares
        try:
            await front.renew_certificate()
        except Misconfigured as error:
            logger.warning("front-certificate-refused", url=front.url, reason=str(error))

    async def _start_and_stop_colours(self) -> None:
        is_running = {name: await runner.is_running() for name, runner in self._runners.items()}
        problems: list[Exception] = []
        for name in self._runners:
            try:
                await self._start_or_stop(name, is_running)
            except Exception as error:  # noqa: BLE001 - raised below
                problems.append(error)
        if all(is_running.values()):
            self._begin_key_copies()
        if problems:
            raise problems[0]

    def _begin_key_copies(self) -> None:
        """Begin to give write keys to the colours that await them; a command that woke one may have been cut short."""
        for name, colour in self.colours.colours.items():
            copy = self._key_copies.get(name)
            if colour.awaits_keys and (copy is None or copy.done()):
                self._key_copies[name] = asyncio.create_task(self._copy_keys(name), name=f"write keys {name}")

    async def _copy_keys(self, name: str) -> None:
        operations = self._operations(self._actor)
        try:
            if await operations.copy_keys(name, if_awaited=True):
                logger.info("write-keys-copied", colour=name)
                return
        except (HifiError, KafkaError, OSError, TimeoutError) as error:
            logger.warning("write-keys-wait", colour=name, reason=str(error) or repr(error))
        except Exception:
            logger.exception("write-keys-failed", colour=name)
        await asyncio.sleep(_KEYS_RETRY_S)

    async def _start_or_stop(self, name: str, is_running: dict[str, bool]) -> None:
        if not self._has_stopped(name):
            return
        runner, colour = self._runners[name], self.colours.colours[name]
        is_awake = colour.state is not ColourState.ASLEEP
        if not is_awake:
            self._slept.add(name)
        if is_running[name] and not is_awake:
            self._stops[name] = asyncio.create_task(runner.stop(), name=f"stop {name}")
            return
        if is_awake and not is_running[name]:
            if runner.was_started and colour.share:
                await self._give_requests_away(name)
            now_s = time.monotonic()
            if now_s - self._started_s.get(name, -_RESTART_S) >= _RESTART_S:
                self._started_s[name] = now_s
                # Events wait in a colour that has died, in one that was asleep none do.
                in_background = is_running[other(name)] and name in self._slept
                await runner.start(self.colours.colours[name].setup, in_background=in_background)
                self._slept.discard(name)
                is_running[name] = True
        await runner.adjust_priority(is_only=not is_running[other(name)])

    def _has_stopped(self, name: str) -> bool:
        """Whether a colour is not being ended now; raises the error with which that has failed."""
        stop = self._stops.get(name)
        if stop is None:
            return True
        if not stop.done():
            return False
        del self._stops[name]
        stop.result()
        return True

    async def _give_requests_away(self, name: str) -> None:
        """Shift everything away from a colour whose mesh has ended, so that it gets no requests while it starts."""
        shares = {name: 0, other(name): WHOLE_SHARE}
        try:
            await self._operations(self._actor).shift(
                shares, f"the mesh of {name} has ended", kind=ActionKind.RECOVER
            )
        except HifiError as error:
            logger.warning("colour-lost", colour=name, requests_stay=str(error))
        else:
            logger.warning("colour-lost", colour=name, requests_go_to=other(name))
