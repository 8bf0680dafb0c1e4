"""From where a step goes on once an instance is elected, and where Kafka has lost what it did not read. No Kafka."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from hifi.pipe.step_inputs import FUTURE_MS
from hifi_state import step_runner
from hifi_state.fold.progress import Base, Progress, Restart
from hifi_state.step_runner import StepRunner
from hifi_state.step_turn import StepTurn

NOW_MS = 1_780_000_000_000
SEEDED_MS = NOW_MS + FUTURE_MS


def runner() -> StepRunner:
    """The runner of a step that has nothing but what `_first_progress` uses."""

    async def unless_stopped(wait: Any) -> bool:
        await wait
        return True

    made = StepRunner.__new__(StepRunner)
    made.pipe = "counts"  # type: ignore[misc]
    made._lifetime = SimpleNamespace(unless_stopped=unless_stopped)  # type: ignore[assignment]
    made._settings = SimpleNamespace(kafka="", topics=SimpleNamespace(enriched="s.enriched"))  # type: ignore[assignment]
    made._registry = SimpleNamespace(coloured=False)  # type: ignore[assignment]
    made._step = SimpleNamespace(from_="flights", join=None)  # type: ignore[assignment]
    return made


async def first_progress(
    kept: Progress | None, first: Mapping[int, int], end: Mapping[int, int], monkeypatch: pytest.MonkeyPatch
) -> tuple[Progress, list[bool]]:
    """The progress with which a turn begins, and whether it is said to leave a part out each time.

    Args:
        kept: on `folds`.
        first: partition to the offset of the first record of `enriched`.
        end: partition to the offset after its last one.
        monkeypatch: replaces the clock and the id of the topic.
    """

    async def nothing(*_: Any) -> None:
        pass

    async def identity(*_: Any) -> Any:
        return SimpleNamespace(topic="")

    async def answer(offsets: Mapping[int, int]) -> Mapping[int, int]:
        return offsets

    made, leaves_out = runner(), list[bool]()
    begun = made.begun

    def note_begun(progress: Progress, **options: bool) -> Progress:
        leaves_out.append(options.get("leaves_out", True))
        return begun(progress, **options)

    monkeypatch.setattr(made, "begun", note_begun)
    monkeypatch.setattr(step_runner, "now_us", lambda: NOW_MS * 1000)
    monkeypatch.setattr(step_runner, "topic_identity", identity)
    fold_log: Any = SimpleNamespace(take_over=nothing, keep=nothing, progress=kept)
    group: Any = SimpleNamespace(first=lambda: answer(first), end=lambda: answer(end))
    folder: Any = SimpleNamespace(declaration=SimpleNamespace(text="d"))
    return await made._first_progress(fold_log, group, folder), leaves_out


async def test_a_new_step_takes_all_before_its_beginning_for_accepted_before_now(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    progress, _ = await first_progress(None, {0: 0, 1: 0}, {0: 5, 1: 7}, monkeypatch)
    assert (progress.offsets, progress.newest_ms) == ({0: 5, 1: 7}, {0: SEEDED_MS, 1: SEEDED_MS})


async def test_a_record_without_accepted_times_leaves_nothing_out(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Progress("d", "flights", 3, {0: 5, 1: 7}, {0: 4}, newest_ms={1: 9})
    progress, leaves_out = await first_progress(kept, {0: 0, 1: 0}, {0: 5, 1: 7}, monkeypatch)
    assert (progress.newest_ms, leaves_out) == ({0: SEEDED_MS, 1: 9}, [False])
    assert progress.raws == {0: 4}


async def test_accepted_times_before_lost_records_and_restarts_among_them_do_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = Progress(
        "d", "flights", 3, {0: 5, 1: 7}, {0: 4, 1: 6}, newest_ms={0: 8, 1: 9}, restarts=(Restart(0, 5),)
    )
    progress, leaves_out = await first_progress(kept, {0: 6, 1: 7}, {0: 9, 1: 9}, monkeypatch)
    assert (progress.offsets, leaves_out) == ({0: 6, 1: 7}, [True])
    assert (progress.newest_ms, progress.raws) == ({0: SEEDED_MS, 1: 9}, {1: 6})


async def test_a_recovery_begins_beyond_a_restart_that_kafka_has_no_more() -> None:
    bases = (Base(1, {0: 10, 1: 10}, {0: 90, 1: 90}),)
    progress = Progress(
        "d", "flights", 3, {0: 40, 1: 40}, bases=bases, restarts=(Restart(0, 20), Restart(1, 35))
    )
    folded: list[tuple[dict[int, int], dict[int, int]]] = []

    def fold(_: Any, start: dict[int, int], end: dict[int, int], rules: Any) -> Any:
        folded.append((end, dict(rules.raws)))
        return SimpleNamespace(rows=lambda _: [], size_bytes=0, summary=SimpleNamespace(raws={}))

    bound = SimpleNamespace(passed=lambda _: None, records=1000)
    made: Any = SimpleNamespace(
        interval_s=1.0, require_leadership=lambda: None, ranges=SimpleNamespace(fold=fold, bound=bound)
    )
    step = SimpleNamespace(window=None, join=None, first=None, reach_ms=None)
    declared: Any = SimpleNamespace(declaration=SimpleNamespace(step=step))
    turn = StepTurn(made, declared, SimpleNamespace(), SimpleNamespace(), progress)  # type: ignore[arg-type]
    turn._file = SimpleNamespace(progress=None, limit=lambda: None, apply=lambda *_: None, windows=lambda: 0)  # type: ignore[assignment]
    await turn._recover({0: 30, 1: 30})
    assert folded == [({0: 40, 1: 35}, {1: 90}), ({0: 40, 1: 40}, {})]
