"""Operations on the colours: each is an action that is recorded in the control plane's actions and may be refused."""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import orjson
from aiokafka import TopicPartition

from hifi.control.action import STREAM, Action, ActionHistory, ActionKind
from hifi.control.action_right import ActionRefused, ActionRight
from hifi.control.permission import Permission, permission
from hifi.control.verdict import Condition, Verdicts
from hifi.delivery.colours import NAMES, WHOLE_SHARE, Colour, Colours, ColourState, other
from hifi.delivery.several_logs import require_fit_for_colours
from hifi.kafka.topics import ControlTopics, Topics
from hifi.kafka.visit import answering, read_topics, write_records
from hifi.pipe.reader import reader
from hifi.pipe.registry import RegistrySnapshot, read_registry
from hifi.pipe.sources.step import StepSource
from hifi.record.record import Record
from hifi.runtime.clock import MICROSECONDS, now_us
from hifi.runtime.errors import HifiError, Misconfigured, Retryable
from hifi_infra.colours.colour_log import ColourLog
from hifi_infra.colours.colour_mesh import colour_topics
from hifi_infra.colours.key_copy import key_changes, read_key_stream
from hifi_infra.colours.new_setup import SetupChange
from hifi_infra.colours.runtime import ColourRuntime, wait_until_ready, wait_until_without_requests
from hifi_infra.kafka.backlog import LAKE, SERVICES, STEP, ConsumerBacklog, read_backlog
from hifi_infra.kafka.stream_setup import in_force

ACTOR: Final = "colours"
_ACTION_S: Final = 60
_POLL_S: Final = 0.5
_SETTLE_S: Final = 3.0
"""Time after the last request for a colour within which requests under way are accepted, and its sources end."""


@dataclass(frozen=True, slots=True)
class ColourAccount:
    """State of one colour as observed: condition, its reasons, and records that its services have not processed."""

    condition: Condition
    reasons: tuple[str, ...] = ()
    waiting: Mapping[str, int] = field(default_factory=dict)
    """Service to records; empty when its Kafka does not run."""


@dataclass(frozen=True, slots=True)
class ColourOperations:
    """Changes the colours of a stream.

    Attributes:
        control_kafka: bootstrap servers of the control plane's Kafka.
        topics: of the stream, the same in both colours.
        runtime: where the colours run.
        by: who asks, for people.
        forced: whether the person takes the responsibility for an action that would be refused.
    """

    control_kafka: str
    topics: Topics
    runtime: ColourRuntime
    by: str
    forced: bool = False

    @property
    def _control(self) -> ControlTopics:
        return ControlTopics(f"{self.topics.stream}-control")

    async def colours(self) -> Colours:
        """The colours as they should be now.

        Raises:
            Misconfigured: the control plane's Kafka does not answer.
        """
        log = self._log()
        async with self._answering():
            await log.read_decided()
        return _require(log.newest)

    async def account(self, name: str) -> ColourAccount:
        """The state of one colour.

        Raises:
            Misconfigured: the control plane's Kafka does not answer.
        """
        verdicts = await self._verdicts(name)
        verdict = verdicts.get(STREAM)
        condition = verdicts.condition((STREAM,), now_us())
        reasons = verdict.reasons if verdict is not None and condition is not Condition.UNKNOWN else ()
        waiting_counts: Mapping[str, int] = {}
        with contextlib.suppress(HifiError):
            if kafka := await self.runtime.kafka(name):
                services = await self._services(kafka)
                waiting_counts = (await read_backlog(kafka, self.topics, services)).waiting
        return ColourAccount(condition, reasons, waiting_counts)

    async def shift(
        self,
        shares: Mapping[str, int],
        reason: str,
        *,
        draining: str = "",
        kind: ActionKind = ActionKind.SHIFT,
    ) -> None:
        """Change the shares; returns once the record says so, and the front follows within a second.

        Args:
            shares: colour to its share in 1/10,000.
            reason: for people.
            draining: a colour without a share that drains from now on.
            kind: `SHIFT`; `RECOVER`, one colour is broken: neither waits for verdicts nor for rollouts; `SCALE_OUT` and
                `SCALE_IN`, a burst begins or is over: the first one does not wait for verdicts.

        Raises:
            ActionRefused: a colour is not stable, a rollout runs, or another action does.
            HifiError: a colour that gets requests is not ready or awaits write keys, or Kafka does not answer.
        """
        text = ", ".join(f"{name} {share / 100:g} %" for name, share in shares.items())
        text += f"; {draining} drains" if draining else ""
        for name, share in shares.items():
            if share and (conditions := await self.runtime.waits_for(name)) and not self.forced:
                raise Retryable(f"{name} is not ready: {'; '.join(conditions)}")
        rollouts = {} if kind is ActionKind.RECOVER or self.forced else await self._rollouts()
        if rollouts:
            remedies = [
                f"a rollout of {', '.join(pipes)} runs in {name}: end it first with {self.runtime.end_of_rollout(name)}"
                for name, pipes in rollouts.items()
            ]
            raise Retryable(f"{'; '.join(remedies)}; or shift with --recovery")

        def change(current: Colours) -> Colours:
            """The next record."""
            if kind is not ActionKind.RECOVER and not self.forced:
                _require_keys(current, shares)
            shifted = current.with_shares(shares, _now_ms(), self.by)
            if not draining:
                return shifted
            return shifted.with_state(draining, ColourState.DRAINING, shifted.at_ms, self.by)

        await self._act(kind, text, reason, change)

    async def drain(self, name: str, reason: str, within_s: float, tell: Callable[[str], None]) -> None:
        """Give all requests to the other colour, and wait until nothing of this one is in flight or waits.

        Raises:
            HifiError: as `shift`; or something still waits after `within_s` seconds.
        """
        await self.shift({name: 0, other(name): WHOLE_SHARE}, reason, draining=name)
        last_text, end_s = "", time.monotonic() + within_s
        services = await self._services(await self._running_kafka(name))
        await wait_until_without_requests(self.runtime, name, (await self.colours()).fronts, within_s)
        await asyncio.sleep(_SETTLE_S)
        ends: dict[TopicPartition, int] = {}
        while remaining_counts := _remaining(await self._backlog(name, services), ends):
            text = ", ".join(f"{service} {count:,}" for service, count in remaining_counts.items())
            if text != last_text:
                tell(f"records that wait: {text}")
                last_text = text
            if time.monotonic() > end_s:
                raise Retryable(f"{name} is not drained within {within_s:.0f} s; records that wait: {text}")
            await asyncio.sleep(_POLL_S)

    async def sleep(self, name: str, reason: str, within_s: float, tell: Callable[[str], None]) -> None:
        """Drain an idle colour and end all of its processes. Nothing is done for one that is asleep.

        Raises:
            HifiError: it gets requests, does not drain in time, the action is refused, or nothing could start it again.
        """
        await self.runtime.check_sleep(name)
        colours = await self.colours()
        if colours.colours[name].state is ColourState.ASLEEP:
            return
        self._with_sleep(colours, name, ())  # refuses while it gets requests
        await self.drain(name, reason, within_s, tell)
        await asyncio.sleep(_SETTLE_S)  # its observe reads the last outcomes
        left_open = await self._left_open(name)
        await self._act(
            ActionKind.SHIFT,
            f"{name} falls asleep",
            reason,
            lambda current: self._with_sleep(current, name, left_open),
        )
        tell("its services end")
        try:
            async with asyncio.timeout(within_s):
                while await self.runtime.runs(name):
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            raise Retryable(f"the mesh of {name} did not end within {within_s:.0f} s") from None

    def _with_sleep(self, colours: Colours, name: str, left_open: Sequence[Mapping[str, Any]]) -> Colours:
        """These colours with one that falls asleep; forced: the write keys of the other one count from now on."""
        if self.forced:
            colours = colours.with_keys(other(name), colours.colours[other(name)].woken_ms)
        return colours.with_sleep(name, left_open, _now_ms(), self.by)

    async def wake(
        self, name: str, reason: str, within_s: float, change: SetupChange | None = None
    ) -> Path | None:
        """Start a colour that is asleep, or end its draining; returns once all of its services are ready.

        Args:
            name: of the colour.
            reason: for people.
            within_s: longest time to wait, seconds.
            change: what it runs on from now on, where that differs.

        Returns:
            The folder with its old stream, where another number of partitions needed a new one.

        Raises:
            HifiError: it is not ready in time, the action is refused, the setup cannot be, or a pipe has a destination
                that would lose events.
        """
        old_streams: list[Path] = []
        colours = await self.colours()
        await self._require_fit_pipes()
        if change:
            self.runtime.check(change)
            setup = change.of(colours.colours[name].setup)

            def make_room() -> None:
                """A stream keeps its number of partitions: another number needs a new one."""
                try:
                    old_folder = self.runtime.make_room(name, setup)
                except OSError as error:
                    raise Misconfigured(f"the old stream of {name} cannot be put aside: {error}") from error
                if old_folder is not None:
                    old_streams.append(old_folder)

            try:
                await self._act(
                    ActionKind.RECOVER,
                    f"{name} wakes with {setup.text() or 'what both were started with'}",
                    reason,
                    lambda current: current.with_setup(name, setup, _now_ms(), self.by),
                    make_room,
                )
            except HifiError as error:
                if not old_streams:
                    raise
                raise Retryable(
                    f"{error}; the old stream of {name} is in {old_streams[0]}: while {name} is asleep and its "
                    f"folder is missing, repeat the command for a new stream, or rename that folder to {name} to keep "
                    "the old one"
                ) from error
        elif not colours.colours[name].share:
            await self._act(
                ActionKind.RECOVER,
                f"{name} wakes",
                reason,
                lambda current: current.with_state(name, ColourState.IDLE, _now_ms(), self.by),
            )
        await wait_until_ready(self.runtime, name, within_s)
        await self.copy_keys(name)
        return old_streams[0] if old_streams else None

    async def copy_keys(self, name: str, *, if_awaited: bool = False) -> bool:
        """Give a colour the issued write keys that the other one has, and note in the record that it has them.

        They may have changed while it slept, and a new stream has none. Keys that were issued in it since stay.

        Args:
            name: of the colour.
            if_awaited: whether nothing is done for a colour that has got them since it woke.

        Returns:
            Whether it has them. Else the Kafka of one of both does not run, or the other one awaits keys itself.

        Raises:
            HifiError: a Kafka does not answer, or the stream of the other colour is new and tells nothing of its keys.
        """
        source, target = await self.runtime.kafka(other(name)), await self.runtime.kafka(name)
        if not source or not target:
            return False
        colours = (await self.colours()).colours
        if colours[other(name)].awaits_keys:
            return False
        colour = colours[name]
        if if_awaited and not colour.awaits_keys:
            return True
        async with answering("the write keys of both colours cannot be compared"):
            # Again until nothing differs: somebody may change them meanwhile.
            while records := await self._key_changes(source, target, colour):
                await write_records(target, ACTOR, (self.topics.write_keys, records))
        if colour.awaits_keys and (await self.colours()).colours[name].awaits_keys:
            await self._write(lambda current: current.with_keys(name, colour.woken_ms))
        return True

    async def _act(
        self,
        kind: ActionKind,
        summary: str,
        reason: str,
        change: Callable[[Colours], Colours],
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        """Take an action that writes the next record of the colours, and calls `prepare` just before."""
        verdicts = {name: await self._verdicts(name) for name in NAMES}
        colours_before = await self.colours()
        awake_names = [
            name for name, colour in colours_before.colours.items() if colour.state is not ColourState.ASLEEP
        ]
        change(colours_before)  # refuses what cannot be, before anything is recorded
        start_us = now_us()
        action = Action(
            ACTOR,
            kind,
            STREAM,
            summary,
            reason,
            start_us,
            start_us + _ACTION_S * MICROSECONDS,
            forced_by=self.by if self.forced else "",
        )

        def allowed(history: ActionHistory) -> Permission:
            """Every colour that is awake must be stable, for what can wait."""
            for name in awake_names:
                condition = verdicts[name].condition((STREAM,), now_us())
                allowance = permission(kind, STREAM, condition, history.running, now_us(), forced=self.forced)
                if not allowance.granted:
                    verdict = verdicts[name].get(STREAM)
                    reasons = "; ".join(verdict.reasons) if verdict is not None else ""
                    return replace(
                        allowance, reason=f"{name}: {allowance.reason}" + (f" ({reasons})" if reasons else "")
                    )
            return Permission(granted=True)

        async def write(token: int) -> None:
            """Write the next record, unless another actor has ended this action since it began."""

            async def check() -> None:
                await action_right.log.catch_up()
                if all(running_action.token != token for running_action in action_right.log.history.running):
                    raise ActionRefused("another action was taken before this one had changed anything")

            await self._write(change, check, prepare)

        action_right = ActionRight(self.control_kafka, self._control.actions, self._control.actor, ACTOR)
        async with self._answering():
            await action_right.start()
        try:
            await action_right.take(action, allowed, write)
        finally:
            await action_right.stop()

    async def _write(
        self,
        change: Callable[[Colours], Colours],
        check: Callable[[], Awaitable[None]] | None = None,
        prepare: Callable[[], None] = lambda: None,
    ) -> None:
        """Write the next record of the colours: `check` may refuse it, and `prepare` is called just before."""

        async def next_colours(newest: Colours | None) -> Colours:
            if check is not None:
                await check()
            changed_colours = change(_require(newest))
            prepare()
            return changed_colours

        log = self._log()
        try:
            await log.write(next_colours)
        finally:
            await log.stop()

    async def _running_kafka(self, name: str) -> str:
        kafka = await self.runtime.kafka(name)
        if not kafka:
            raise Retryable(
                f"the mesh of {name} does not run, so what waits there is not known: `hifi colour wake {name}`"
            )
        return kafka

    async def _backlog(self, name: str, services: Sequence[str]) -> ConsumerBacklog:
        return await read_backlog(await self._running_kafka(name), self.topics, services)

    async def _services(self, kafka: str) -> list[str]:
        """The services that have to process the events of a colour before nothing waits in it."""
        return [*SERVICES, *_readers_of_enriched(await read_registry(kafka, self.topics))]

    async def _left_open(self, name: str) -> list[Mapping[str, Any]]:
        """The watermarks of a colour that was drained, where deliveries are parked: those come back when it wakes.

        Raises:
            Misconfigured: one cannot be read, so that nobody knows what is parked.
            Retryable: Kafka does not answer.
        """
        values: dict[bytes | None, bytes] = {}

        def take(key: bytes | None, value: bytes | None, _: int) -> None:
            if value is None:
                values.pop(key, None)
            else:
                values[key] = value

        async with answering(f"what is parked in {name} cannot be read"):
            await read_topics(await self._running_kafka(name), ACTOR, {self.topics.watermarks: take})
        try:
            statements = [orjson.loads(value) for value in values.values()]
            return [statement for statement in statements if statement["open"]["parked"]]
        except (KeyError, TypeError, ValueError) as error:
            raise Misconfigured(
                f"a watermark of {name} cannot be read ({error!r}), so what is parked there is not known: put it to "
                "sleep with the release that wrote it"
            ) from None

    async def _rollouts(self) -> dict[str, list[str]]:
        """Colour to the names of its pipes with a rollout, of colours that run and have any."""
        rollouts = {}
        for name in NAMES:
            if kafka := await self.runtime.kafka(name):
                pipes = (await read_registry(kafka, self.topics)).pipes
                rollouts[name] = sorted(
                    pipe for pipe, revision in pipes.items() if revision.rollout is not None
                )
        return {name: pipes for name, pipes in rollouts.items() if pipes}

    async def _require_fit_pipes(self) -> None:
        """Refuse to go on with pipes that would lose events of one colour, in a colour that runs."""
        for name in NAMES:
            if kafka := await self.runtime.kafka(name):
                require_fit_for_colours(in_force(await read_registry(kafka, self.topics)))

    async def _key_changes(self, source: str, target: str, colour: Colour) -> list[Record]:
        """The records that give a colour, whose Kafka is the target, the issued write keys of the source."""
        source_stream = await read_key_stream(source, ACTOR, self.topics.write_keys)
        target_stream = await read_key_stream(target, ACTOR, self.topics.write_keys)
        return key_changes(target_stream, source_stream, colour.woken_ms * 1000, keeps_new=colour.awaits_keys)

    async def _verdicts(self, name: str) -> Verdicts:
        verdicts = Verdicts()
        health = colour_topics(self.topics.stream, name).health
        async with self._answering():
            await read_topics(self.control_kafka, ACTOR, {health: verdicts.take})
        return verdicts

    def _log(self) -> ColourLog:
        return ColourLog(self.control_kafka, self._control, ACTOR)

    def _answering(self) -> AbstractAsyncContextManager[None]:
        return answering(
            f"the control plane's Kafka at {self.control_kafka} does not answer: nothing was changed, and the front "
            "keeps its shares; check that `hifi up --colours` runs",
            Misconfigured,
        )


def _readers_of_enriched(registry: RegistrySnapshot) -> list[str]:
    """lake, if a pipe has a table, and each step that runs."""
    has_table = any(
        reader(destination) == "lake" for pipe in in_force(registry) for destination in pipe.destinations
    )
    steps = [
        name
        for name, revision in registry.pipes.items()
        if isinstance(revision.pipe.source, StepSource) and not revision.paused
    ]
    return [LAKE] * has_table + [STEP + name for name in steps]


def _remaining(backlog: ConsumerBacklog, ends: dict[TopicPartition, int]) -> dict[str, int]:
    """Service to the records that wait in it; nothing waits in those that are left out.

    lake and state commit rarely, while heartbeats follow the last event for ever. So they only have to get to where
    `enriched` ended when nothing waited in the services before them.

    Args:
        backlog: as it is now.
        ends: that end of each partition, added once it is known.
    """
    counts = {service: backlog.waiting[service] for service in SERVICES}
    later_ranges = {service: ranges for service, ranges in backlog.ranges.items() if service not in SERVICES}
    if not ends and not any(counts.values()):
        for ranges in later_ranges.values():
            ends |= {tp: offsets.stop for tp, offsets in ranges.items()}
    for service, ranges in later_ranges.items():
        counts[service] = sum(
            len(range(offsets.start, ends.get(tp, offsets.stop))) for tp, offsets in ranges.items()
        )
    return {service: count for service, count in counts.items() if count}


def _require_keys(colours: Colours, shares: Mapping[str, int]) -> None:
    """Refuse to give more requests to a colour that would take its write keys from before its sleep.

    Raises:
        Retryable: it has not got those of the other one yet.
    """
    for name, share in shares.items():
        if share > colours.colours[name].share and colours.colours[name].awaits_keys:
            raise Retryable(
                f"{name} has not got the issued write keys of {other(name)} yet, so it would refuse new ones and "
                "accept revoked ones: it gets them within seconds once both run; or shift with --recovery"
            )


def _require(colours: Colours | None) -> Colours:
    if colours is None:
        raise Misconfigured("the stream has no colours yet: start it with `hifi up --colours`")
    return colours


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
