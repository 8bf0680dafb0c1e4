"""Users' functions in real workers: hanging, crashing and greedy ones cost their own events only."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path

import orjson
import pytest
from tests.support.normalize.normalize_harness import new_stream, normalize, pipe

from hifi.record.fields import fields
from hifi.record.headers import REASON
from hifi.runtime.errors import Rejected
from hifi.runtime.health import Health
from hifi_normalize.functions.function_runner import (
    ROUND_BYTES,
    AnswerRound,
    FunctionLimits,
    FunctionRunner,
    PipeFunction,
)

FUNCTIONS = """
import os, sys, time
def double(data): return {"v": data["v"] * 2}
def boom(data): raise ValueError("secret")
def hang(data):
    while data.get("hang"): time.sleep(1)
    return data
def leave(data):
    if data.get("leave"): os._exit(3)
    return data
def fill(data):
    if data.get("fill"): bytearray(2**40)
    return data
def speak(data):
    print("noise"); sys.stdout.flush(); os.write(1, b"more noise")
    return {"read": sys.stdin.read()}
def look(data):
    with open("/proc/self/environ") as file: given = file.read()
    return {"seen": "PLANTED_SECRET" in given or "PLANTED_SECRET" in os.environ}
def fork(data):
    os.fork()
    return data
def forge(data):
    for number in range(3, 20): os.write(number, b"o" + bytes(7) + bytes([2]) + b"{}") if data.get("forge") else None
    return data
def blow_up(data): return {"text": "x" * data["size"]}
def slow(data): time.sleep(0.05); return data
def brisk(data): time.sleep(0.01); return data
"""
LIMITS = FunctionLimits(deadline_s=0.5, mean_s=1.0, memory_bytes=256 * 2**20)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_functions.py").write_text(FUNCTIONS)
    (tmp_path / "stuck_functions.py").write_text("def f(data): return data\nimport time\ntime.sleep(100)\n")
    monkeypatch.setenv("HIFI_PIPES_FUNCTION_FOLDERS", str(tmp_path))
    for name in ("PLANTED_SECRET", "PYTHON_PLANTED_SECRET", "USER_PLANTED_SECRET"):
        monkeypatch.setenv(name, "no function may see it")
    return "own_functions"


@pytest.fixture
async def runner(module: str) -> AsyncIterator[FunctionRunner]:
    runner = FunctionRunner(LIMITS, Health("normalize", "test"))
    yield runner
    await runner.stop()


@pytest.fixture
async def patient_runner(module: str) -> AsyncIterator[FunctionRunner]:
    runner = FunctionRunner(FunctionLimits(20, 1.0, LIMITS.memory_bytes), Health("normalize", "test"))
    yield runner
    await runner.stop()


async def call(runner: FunctionRunner, name: str, *data: object, version: int = 1) -> list[object]:
    answers = await runner.call(
        PipeFunction("p", version, f"own_functions:{name}"), [*map(orjson.dumps, data)], AnswerRound()
    )
    return [answer.reason if isinstance(answer, Rejected) else orjson.loads(answer) for answer in answers]


async def test_a_function_is_called_for_each_event_in_order(runner: FunctionRunner) -> None:
    assert await call(runner, "double", *({"v": n} for n in range(2000))) == [
        {"v": n * 2} for n in range(2000)
    ]
    assert await call(runner, "boom", {}, {}) == ["function-failed", "function-failed"]


@pytest.mark.parametrize(("name", "reason"), [("hang", "function-timeout"), ("leave", "function-ended")])
async def test_an_event_without_an_answer_is_a_dead_letter_and_after_three_the_pipe_is_quarantined(
    runner: FunctionRunner, name: str, reason: str
) -> None:
    bad_data, good_data = {name: 1}, {"v": 1}
    assert await call(runner, name, good_data, bad_data, good_data, good_data) == [
        good_data,
        reason,
        good_data,
        good_data,
    ]
    assert await call(runner, name, bad_data, bad_data, good_data, bad_data) == [
        reason,
        reason,
        *["function-quarantined"] * 2,
    ]
    assert await call(runner, name, good_data) == ["function-quarantined"]
    assert await call(runner, name, good_data, version=2) == [good_data]


async def test_a_function_that_forks_or_forges_answers_gives_no_event_the_answer_of_another(
    runner: FunctionRunner,
) -> None:
    for _ in range(2):
        assert await call(runner, "fork", *({"n": n} for n in range(20))) == [{"n": n} for n in range(20)]
    answers = await call(runner, "forge", {"n": 0}, {"forge": 1}, *({"n": n} for n in range(2, 9)))
    assert [answer for answer in answers if isinstance(answer, dict) and "n" in answer] == [
        {"n": n} for n, answer in enumerate(answers) if isinstance(answer, dict) and "n" in answer
    ]
    assert answers[2:] == [{"n": n} for n in range(2, 9)]


@pytest.mark.parametrize("started", [False, True])
async def test_after_calls_that_were_cancelled_each_event_gets_its_own_answer(
    runner: FunctionRunner, started: bool
) -> None:
    if started:
        await call(runner, "slow", {})
    calls = asyncio.create_task(call(runner, "slow", *({"n": n} for n in range(40))))
    async with asyncio.timeout(20):
        while not (
            (workers := [*runner._workers.values()])
            and workers[0]._process
            and workers[0].sent_calls >= started * 2
        ):
            await asyncio.sleep(0)
    calls.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calls
    for first_number in (100, 200):
        data = [{"n": n} for n in range(first_number, first_number + 20)]
        assert await call(runner, "slow", *data) == data


async def test_an_answer_that_belongs_to_another_call_is_refused(runner: FunctionRunner) -> None:
    assert await call(runner, "slow", {"n": 0}) == [{"n": 0}]
    [worker] = runner._workers.values()
    worker.send([b'{"n":1}'])
    assert await call(runner, "slow", {"n": 2}, {"n": 3}) == ["function-ended", {"n": 3}]


async def test_time_for_which_normalize_itself_stands_still_is_no_time_of_a_function(module: str) -> None:
    limits = FunctionLimits(1.0, 0.05, LIMITS.memory_bytes)
    runner = FunctionRunner(limits, Health("normalize", "test"))
    data = [{"n": n} for n in range(20)]
    await call(runner, "brisk", {})
    for pauses_s in ((2.5,), (2.5,), (0.625,) * 4):
        for index, pause_s in enumerate(pauses_s):
            asyncio.get_running_loop().call_later(0.03 * (index + 1), time.sleep, pause_s)
        assert await call(runner, "brisk", *data) == data
    await call(runner, "hang", {})
    asyncio.get_running_loop().call_later(0.03, time.sleep, 0.5)
    assert await call(runner, "hang", {"hang": True}, {}) == ["function-timeout", {}]
    await runner.stop()


async def test_memory_is_bounded(runner: FunctionRunner) -> None:
    assert await call(runner, "fill", {"fill": 1}, {"v": 1}) == ["function-failed", {"v": 1}]


async def test_an_answer_above_the_limit_of_a_record_is_refused_and_names_its_size(
    patient_runner: FunctionRunner,
) -> None:
    function = PipeFunction("p", 1, "own_functions:blow_up")
    sizes = (5 * 2**20, 1, 20 * 2**20)
    refused, passed, huge = await patient_runner.call(
        function, [b'{"size":%d}' % size for size in sizes], AnswerRound()
    )
    assert passed == b'{"text":"x"}'
    for answer, size in ((refused, "5,242,891"), (huge, "20,971,531")):
        assert isinstance(answer, Rejected)
        assert (answer.reason, size in answer.detail) == ("function-failed", True)


async def test_a_round_ends_when_answers_fill_it_and_the_next_one_goes_on(
    patient_runner: FunctionRunner,
) -> None:
    function = PipeFunction("p", 1, "own_functions:blow_up")
    data = [b'{"size":%d}' % (3 * 2**20 + index) for index in range(60)]
    answers: list[bytes | Rejected] = []
    while len(answers) < len(data):
        round_answers = await patient_runner.call(function, data[len(answers) :], AnswerRound())
        assert 0 < sum(len(answer) for answer in round_answers if isinstance(answer, bytes)) < 5 * ROUND_BYTES
        answers += round_answers
    assert [isinstance(answer, bytes) and len(answer) for answer in answers] == [
        3 * 2**20 + index + len('{"text":""}') for index in range(60)
    ]


async def test_what_a_function_prints_does_no_harm_and_it_has_no_input_and_no_secrets(
    runner: FunctionRunner,
) -> None:
    assert await call(runner, "speak", {}, {}) == [{"read": ""}, {"read": ""}]
    assert os.environ["PLANTED_SECRET"]
    assert await call(runner, "look", {}) == [{"seen": False}]


async def test_events_beyond_the_budget_of_a_fetch_are_dead_letters_and_quarantine_the_pipe(
    module: str,
) -> None:
    runner = FunctionRunner(FunctionLimits(0.5, 0.001, LIMITS.memory_bytes), Health("normalize", "test"))
    for _ in range(3):
        answers = await call(runner, "slow", *({"n": n} for n in range(60)))
        assert answers[0] == {"n": 0}
        assert answers[-1] == "function-timeout"
    assert await call(runner, "slow", {}) == ["function-quarantined"]
    await runner.stop()


async def test_a_module_that_cannot_be_imported_holds_nothing_up_again(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = FunctionRunner(LIMITS, Health("normalize", "test"))
    stuck_function = PipeFunction("p", 1, "stuck_functions:f")
    with monkeypatch.context() as patch:
        patch.setattr("hifi_normalize.functions.worker_process._START_S", 1.0)
        reasons = [
            answer.reason
            for answer in await runner.call(stuck_function, [b"{}"] * 3, AnswerRound())
            if isinstance(answer, Rejected)
        ]
    missing_answers = await runner.call(PipeFunction("p", 1, "own_functions:missing"), [b"{}"], AnswerRound())
    await runner.stop()
    assert reasons == ["function-timeout", "function-quarantined", "function-quarantined"]
    assert isinstance(missing_answers[0], Rejected)
    assert missing_answers[0].reason == "pipe-broken"


async def test_a_worker_that_is_not_needed_any_more_ends_after_its_answer(runner: FunctionRunner) -> None:
    function = PipeFunction("p", 1, "own_functions:slow")
    call_task = asyncio.create_task(runner.call(function, [b"{}"] * 5, AnswerRound()))
    await asyncio.sleep(0)
    runner.keep([])
    assert await call_task == [b"{}"] * 5


async def test_a_function_that_hangs_delays_no_other_pipe_of_its_partition_for_long_and_keeps_the_order(
    kafka: str, log: Path, module: str
) -> None:
    pipes = [pipe("plain"), pipe("hanging", function=f"{module}:hang", mask={"hang": "drop"})]
    async with new_stream(kafka, *pipes) as stream:
        records = [
            stream.event("hanging", {"n": n, "hang": False}) if n % 2 else stream.event("plain", {"n": n})
            for n in range(40)
        ]
        records[1] = stream.event("hanging", {"n": 1, "hang": True})
        await stream.put(1, *records)
        async with normalize(stream, log) as instance:
            passed_records = await stream.read(stream.topics.normalized, 39)
            [dead_letter] = await stream.read(stream.topics.dead_letter, 1)
            assert await instance.stop() == 0
    assert [orjson.loads(record.value)["n"] for record in passed_records] == [0, *range(2, 40)]
    assert fields(dead_letter.headers)[REASON] == b"function-timeout"
