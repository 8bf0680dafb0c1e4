"""Calls users' functions in workers, and quarantines a pipe whose function hangs or ends its worker again and again."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from hifi.pipe.normalize.program import NormalizeProgram
from hifi.runtime import log, metrics
from hifi.runtime.clock import monotonic_s
from hifi.runtime.errors import Misconfigured, Rejected
from hifi.runtime.health import Health
from hifi_normalize.functions.worker_process import WorkerFailed, WorkerProcess

FAILURES: Final = 3
"""Events without an answer, and fetches that took too long, after which the pipe is quarantined."""
ROUND_BYTES: Final = 16 * 2**20
"""Answers of a round after which no more functions are called in it."""
_AHEAD: Final = 16
"""Calls at most that a worker has got and not answered: their answers may exceed a round."""

logger = log.get(__name__)


@dataclass(frozen=True, slots=True)
class FunctionLimits:
    """Limits of users' functions.

    Attributes:
        deadline_s: longest time of a call for one event, seconds.
        mean_s: longest mean time of the calls for the events of a fetch, besides one deadline, seconds.
        memory_bytes: that a worker may allocate.
    """

    deadline_s: float
    mean_s: float
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class PipeFunction:
    """The function of a revision of a pipe.

    Attributes:
        pipe: the pipe's name, with the revision if it is not the current one.
        offset: of the revision; a new one is not quarantined.
        path: `module:function`.
    """

    pipe: str
    offset: int
    path: str


class AnswerRound:
    """Counts the bytes of answers that are kept until all are written."""

    def __init__(self) -> None:
        self._bytes = 0

    @property
    def full(self) -> bool:
        """Whether no more functions are to be called."""
        return self._bytes >= ROUND_BYTES

    def add(self, answer: bytes | Rejected) -> None:
        """Count an answer."""
        if not isinstance(answer, Rejected):
            self._bytes += len(answer)


class FunctionRunner:
    """The workers of all functions, one process each.

    Args:
        limits: of every function.
        health: warned while a pipe is quarantined.
    """

    def __init__(self, limits: FunctionLimits, health: Health) -> None:
        self._limits = limits
        self._health = health
        self._workers: dict[str, WorkerProcess] = {}
        self._failures: Counter[PipeFunction] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    async def call(
        self, function: PipeFunction, data: Sequence[bytes], answer_round: AnswerRound
    ) -> list[bytes | Rejected]:
        """Call a function on the data of events, in their order, until the round is full: at least on some.

        Returns:
            For each event, from the first one, the new data, or the reason for its dead letter: `function-failed` if
            the function raised or returned no JSON or too much of it, `function-timeout`, `function-ended`,
            `function-quarantined`, or `pipe-broken` if the function cannot be imported.
        """
        worker = self._workers.get(function.path)
        if worker is None:
            worker = self._workers[function.path] = WorkerProcess(function.path, self._limits.memory_bytes)
        async with worker.turn():
            return await self._call(worker, function, data, answer_round)

    async def _call(
        self, worker: WorkerProcess, function: PipeFunction, data: Sequence[bytes], answer_round: AnswerRound
    ) -> list[bytes | Rejected]:
        limits, answers = self._limits, list[bytes | Rejected]()
        budget_s = limits.deadline_s + limits.mean_s * len(data)
        while len(answers) < len(data):
            if self._failures[function] >= FAILURES:
                answers += [_quarantined() for _ in data[len(answers) :]]
                break
            try:
                await self._start(worker, function)
                sent_count, number = len(answers), worker.sent_calls
                start_s, lost_at_start_s = monotonic_s(), worker.starved_s + worker.paused_s
                while len(answers) < len(data):
                    if (
                        sent_count < len(data)
                        and sent_count - len(answers) <= _AHEAD // 2
                        and not (answers and answer_round.full)
                    ):
                        end = min(len(answers) + _AHEAD, len(data))
                        worker.send(data[sent_count:end])
                        sent_count = end
                    if sent_count == len(answers):
                        return answers
                    if monotonic_s() - start_s > budget_s and (
                        monotonic_s() - start_s - (worker.starved_s + worker.paused_s - lost_at_start_s)
                        > budget_s
                    ):
                        worker.kill()
                        error = f"it took longer than {limits.mean_s * 1000:g} ms an event for a fetch"
                        rejection = self._count_failure(function, error)
                        answers += [
                            Rejected(rejection.reason, rejection.detail) for _ in data[len(answers) :]
                        ]
                        break
                    answers.append(await worker.receive(number, limits.deadline_s))
                    number += 1
                    answer_round.add(answers[-1])
            except Misconfigured as error:
                detail = f"the pipe {function.pipe} cannot be used: {error}"
                answers += [Rejected("pipe-broken", detail) for _ in data[len(answers) :]]
            except WorkerFailed as error:
                answers.append(self._count_failure(function, str(error)))
        return answers

    async def _start(self, worker: WorkerProcess, function: PipeFunction) -> None:
        try:
            await worker.start()
        except WorkerFailed:
            self._failures[function] = FAILURES - 1  # each further attempt would take as long
            raise

    async def stop(self) -> None:
        """End all workers."""
        for worker in self._workers.values():
            worker.kill()
        await asyncio.gather(*self._tasks)
        await asyncio.gather(*(worker.stop() for worker in self._workers.values()))
        self._workers.clear()

    def keep(self, functions_in_use: Sequence[PipeFunction]) -> None:
        """Start the workers of these functions, end all other workers, and forget the failures of other versions."""
        paths = {function.path for function in functions_in_use}
        for path in self._workers.keys() - paths:
            self._start_task(_end_worker(self._workers.pop(path)))
        for path in paths - self._workers.keys():
            worker = self._workers[path] = WorkerProcess(path, self._limits.memory_bytes)
            self._start_task(_start_worker(worker))
        for unused_function in self._failures.keys() - set(functions_in_use):
            del self._failures[unused_function]
            self._health.warn(_subject(unused_function), None)

    def _start_task(self, coroutine: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _count_failure(self, function: PipeFunction, error: str) -> Rejected:
        self._failures[function] += 1
        failures = self._failures[function]
        metrics.FUNCTION_FAILURES.labels(function.pipe).inc()
        log_fields = {"pipe": function.pipe, "function": function.path}
        logger.error("function-worker-failed", **log_fields, error=error, failures=failures)
        if failures == FAILURES:
            logger.error("function-quarantined", **log_fields)
            effect = "its events go to the dead letters until the pipe is published again"
            self._health.warn(
                _subject(function), f"{function.path} gave no answer {FAILURES} times: {effect}"
            )
        reason = "function-timeout" if "longer than" in error else "function-ended"
        return Rejected(reason, f"{function.path} gave no answer: {error}")


async def _start_worker(worker: WorkerProcess) -> None:
    """Start a worker before it is needed. An error is raised when it is needed."""
    with contextlib.suppress(Misconfigured, WorkerFailed):
        async with worker.turn():
            await worker.start()


async def _end_worker(worker: WorkerProcess) -> None:
    """End a worker after its last answer."""
    try:
        async with worker.turn():
            pass
    finally:
        await worker.stop()


def _quarantined() -> Rejected:
    return Rejected(
        "function-quarantined",
        f"the pipe's function gave no answer {FAILURES} times; publish the pipe again to release it",
    )


def _subject(function: PipeFunction) -> str:
    return f"function of pipe {function.pipe}"


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A call of a function.

    Attributes:
        offset: of the event.
        program: that the event goes through.
        data: of the event after the steps before the function.
    """

    offset: int
    program: NormalizeProgram
    data: bytes


@dataclass(frozen=True, slots=True)
class FunctionAnswer:
    """The answer of a function for an event.

    Attributes:
        program: that the event goes through.
        result: the new data, or the reason for the dead letter.
    """

    program: NormalizeProgram
    result: bytes | Rejected

    def finish(self) -> bytes:
        """Apply the steps after the function.

        Raises:
            Rejected: the event is a dead letter.
        """
        if isinstance(self.result, Rejected):
            raise self.result
        return self.program.finish(self.result)


async def call_all(
    runner: FunctionRunner, calls: Mapping[PipeFunction, Sequence[FunctionCall]]
) -> dict[int, FunctionAnswer]:
    """Call several functions side by side until their answers fill a round, and return the answers by offset.

    Args:
        runner: of the workers.
        calls: of each function, in the order of the events.
    """
    answer_round = AnswerRound()
    result_lists = await asyncio.gather(
        *(
            runner.call(function, [call.data for call in function_calls], answer_round)
            for function, function_calls in calls.items()
        )
    )
    return {
        call.offset: FunctionAnswer(call.program, result)
        for function_calls, results in zip(calls.values(), result_lists, strict=True)
        for call, result in zip(function_calls, results, strict=False)  # a full round has fewer results
    }
