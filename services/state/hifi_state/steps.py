"""Starts and ends the steps of all pipes as their declarations change."""

import asyncio
from collections.abc import Set as AbstractSet
from pathlib import Path

from hifi.delivery.raw_writer import RawWriter
from hifi.kafka.producer import Producer
from hifi.pipe.model import Pipe
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.sources.step import StepSource
from hifi.pipe.step_refusals import refuse_two_colours, step_refusals
from hifi.runtime import log
from hifi.runtime.lifetime import Lifetime
from hifi.spark.catalyst import Catalyst
from hifi.spark.spark_session import SparkExited
from hifi_state.rehearsals import Rehearsals
from hifi_state.settings import StateSettings
from hifi_state.step_runner import DeclaredStep, StepRunner
from hifi_state.step_times_log import StepTimesLog

logger = log.get(__name__)


class _RunningStep(Lifetime):
    """One step, which ends when a declaration changes or the service stops."""

    def __init__(self, lifetime: Lifetime, declared: DeclaredStep) -> None:
        super().__init__(lifetime.health)
        self.declared = declared
        self.task: asyncio.Task[None] | None = None


class Steps:
    """The steps of all pipes."""

    def __init__(
        self,
        lifetime: Lifetime,
        settings: StateSettings,
        catalyst: Catalyst,
        registry: PipeRegistry,
        writer: RawWriter,
        producer: Producer,
        folder: Path,
        times_log: StepTimesLog,
    ) -> None:
        """Nothing runs before `run`.

        Args:
            lifetime: ends all steps.
            settings: of the service.
            catalyst: of the Spark session.
            registry: of the pipes, started.
            writer: of results.
            producer: of dead letters.
            folder: for the files of the steps.
            times_log: has what the other colour counts, if the stream has two.
        """
        self._lifetime = lifetime
        self._settings = settings
        self._catalyst = catalyst
        self._registry = registry
        self._writer = writer
        self._producer = producer
        self._folder = folder
        self._times_log = times_log
        self._rehearsals = Rehearsals()
        self._running: dict[str, _RunningStep] = {}
        self._refused: AbstractSet[str] = frozenset()
        self._changed = asyncio.Event()
        registry.on_change(self._changed.set)

    async def run(self) -> None:
        """Start and end steps as pipes change until the stop; then end all.

        Raises:
            SparkExited: Spark's JVM has exited.
        """
        try:
            async with asyncio.TaskGroup() as tasks:
                while not self._lifetime.stopping.is_set():
                    self._changed.clear()
                    await self._update(tasks)
                    await self._lifetime.unless_stopped(self._changed.wait())
                for step in self._running.values():
                    step.stopping.set()
        except* SparkExited as group:
            raise group.exceptions[0] from None

    async def _update(self, tasks: asyncio.TaskGroup) -> None:
        declared_steps = self._declared()
        for name, step in list(self._running.items()):
            if declared_steps.get(name) != step.declared:
                step.stopping.set()
                if step.task is not None:
                    await asyncio.wait([step.task])
                del self._running[name]
                logger.info("step-ended", pipe=name)
        for name in sorted(declared_steps.keys() - self._running.keys()):
            step = self._running[name] = _RunningStep(self._lifetime, declared_steps[name])
            runner = StepRunner(
                step,
                self._settings,
                self._catalyst,
                self._registry,
                self._writer,
                self._producer,
                step.declared,
                self._folder,
                self._times_log,
                self._rehearsals,
            )
            step.task = tasks.create_task(runner.run())
            logger.info("step-begun", pipe=name)

    def _declared(self) -> dict[str, DeclaredStep]:
        """Pipe to the step to run now. A held or paused pipe goes on later from its progress."""
        revisions = {revision.pipe.pipe: revision for revision in self._registry.all()}
        pipes = {name: revision.pipe for name, revision in revisions.items()}
        declared_steps: dict[str, DeclaredStep] = {}
        refusals: dict[str, str] = {}
        for revision in revisions.values():
            pipe = revision.pipe
            if not isinstance(pipe.source, StepSource) or revision.paused:
                continue
            reason = self._refusal(pipe, pipes)
            if reason is not None:
                refusals[pipe.pipe] = reason
            else:
                read_revisions = [revisions[name] for name in pipe.source.read_pipes]
                revisions_text = ",".join(str(read.offset) for read in (revision, *read_revisions))
                read_pipes = tuple(read_revision.pipe for read_revision in read_revisions)
                declared_steps[pipe.pipe] = DeclaredStep(pipe, read_pipes, revisions_text)
        for name in self._refused | refusals.keys():
            self._lifetime.health.warn(f"declaration of the step {name}", refusals.get(name))
        self._refused = refusals.keys()
        return declared_steps

    def _refusal(self, pipe: Pipe, pipes: dict[str, Pipe]) -> str | None:
        """Why a step does not run; None: it does."""
        assert isinstance(pipe.source, StepSource)
        if self._registry.coloured and (reason := refuse_two_colours(pipe.source)):
            return reason
        for name in (pipe.pipe, *pipe.source.read_pipes):
            if (reason := self._registry.held(name)) is not None:
                return f"the pipe {name} is held: {reason}"
        return next((reason for _, reason in step_refusals(pipe, pipes)), None)
