"""Splits the requests between both colours while one alone would not carry them: measures, decides, acts."""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from aiokafka.errors import KafkaError
from prometheus_client.parser import text_string_to_metric_families

from hifi.control.action import ActionKind
from hifi.delivery.colours import NAMES, WHOLE_SHARE, Colours, ColourState, other
from hifi.runtime import log
from hifi.runtime.errors import HifiError
from hifi_infra.colours.burst import BurstAction, BurstPolicy, RateSample, decide
from hifi_infra.colours.operations import ColourOperations
from hifi_infra.mesh import running
from hifi_infra.mesh.health_probe import LOOPBACK, get

MEASURE_S: Final = 5.0
_ACCEPTED: Final = "hifi_ingest_accepted_events"

logger = log.get(__name__)


class BurstSplitter:
    """Call `adjust` every `MEASURE_S` seconds, or `follow` once.

    Args:
        policy: when to split and to join.
        by: author of its records: what anybody else has split stays split.
        operations: makes the operations of the colours in the name of somebody.
        count: reads how many events both colours have accepted so far; None: not known.
        clock: monotonic, seconds.
    """

    def __init__(
        self,
        policy: BurstPolicy,
        actor: str,
        operations: Callable[[str], ColourOperations],
        count: Callable[[], Awaitable[float | None]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy, self._actor, self._count, self._clock = policy, actor, count, clock
        self._operations = operations(actor)
        self._before: tuple[float, float | None] = (clock(), None)
        sample_limit = int((policy.split_after_s + policy.join_after_s) / MEASURE_S) + 2
        self._samples: deque[RateSample] = deque(maxlen=sample_limit)
        self._active = ""
        """The colour that had every request before the burst."""

    async def follow(self, colours: Callable[[], Colours]) -> None:
        """Adjust again and again, by the newest record that `colours` gives."""
        while True:
            await asyncio.sleep(MEASURE_S)
            try:
                await self.adjust(colours())
            except Exception:
                logger.exception("burst-failed")

    async def adjust(self, colours: Colours) -> None:
        """Measure, and split or join where that is due."""
        self._samples.append(await self._measure())
        active_names = [name for name in NAMES if colours.colours[name].share == WHOLE_SHARE]
        is_split = not active_names and colours.by == self._actor and bool(self._active)
        if not is_split and not active_names:
            return
        action = decide(self._policy, self._samples, split=is_split)
        rate = self._samples[-1].per_s
        try:
            if action is BurstAction.SPLIT:
                await self._split(
                    colours, active_names[0], f"{rate:.0f} events/s are above {self._policy.above_per_s:g}"
                )
            elif action is BurstAction.JOIN:
                shares = {self._active: WHOLE_SHARE, other(self._active): 0}
                await self._operations.shift(
                    shares, f"{rate:.0f} events/s fit one colour again", kind=ActionKind.SCALE_IN
                )
        except (HifiError, KafkaError, OSError, TimeoutError) as error:
            logger.warning("burst-waits", action=action.value, reason=str(error) or repr(error))

    async def _split(self, colours: Colours, active_name: str, reason: str) -> None:
        if colours.colours[other(active_name)].state is ColourState.ASLEEP:
            logger.warning(
                "burst-waits", action=BurstAction.SPLIT.value, reason=f"{other(active_name)} is asleep"
            )
            return
        half_share = WHOLE_SHARE // 2
        self._active = active_name  # a shift that raises may count all the same
        await self._operations.shift(dict.fromkeys(NAMES, half_share), reason, kind=ActionKind.SCALE_OUT)

    async def _measure(self) -> RateSample:
        now_s, count = self._clock(), await self._count()
        before_s, count_before = self._before
        self._before = (now_s, count)
        if count is None or count_before is None or now_s <= before_s or count < count_before:
            return RateSample(now_s, None)
        return RateSample(now_s, (count - count_before) / (now_s - before_s))


def ingests_of(folders: Mapping[str, Path]) -> list[tuple[str, int]]:
    """Host and port of the health pages of the ingest of every colour that runs on this machine.

    Args:
        folders: colour to its data folder.
    """
    meshes = [mesh for folder in folders.values() if (mesh := running.find(folder)) is not None]
    return [
        (LOOPBACK, instance.port)
        for mesh in meshes
        for instance in mesh.instances
        if instance.service == "ingest"
    ]


async def accepted_events(ingests: Sequence[tuple[str, int]]) -> float | None:
    """Events that these have accepted since their start; None: there are none, or one does not tell.

    Args:
        ingests: host and port of their health pages.
    """
    try:
        pages = await asyncio.gather(*(get(port, "/metrics", host=host) for host, port in ingests))
        return sum(_total(body.decode()) for _, body in pages) if ingests else None
    except (OSError, ValueError):
        return None


def _total(page: str) -> float:
    """The counter of a page of metrics.

    Raises:
        ValueError: it is no such page.
    """
    families = text_string_to_metric_families(page)
    return sum(
        sample.value
        for family in families
        if family.name == _ACCEPTED
        for sample in family.samples
        if sample.name.endswith("_total")
    )
