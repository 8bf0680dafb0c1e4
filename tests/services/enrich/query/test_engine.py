"""A plan is made of the pipes and lookups of one moment, one plan at a time. Spark itself is replaced."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.enrich.spark_bench import make_pipe

from hifi.kafka.topics import Topics
from hifi.pipe.model import Lookup
from hifi.pipe.revision import PipeRevision
from hifi.runtime.health import Health
from hifi.spark import lookup_reader
from hifi.spark.lookup_key import table_ids
from hifi_enrich.lookup.tables import LookupTables
from hifi_enrich.query.engine import PlanInputs, SparkEngine
from hifi_enrich.settings import EnrichSettings
from hifi_enrich.supervision.plan_updater import PlanUpdater

CSV = "code,name\nAA,American\n"


def revision_with_lookup(file: Path, offset: int, **options: Any) -> PipeRevision:
    lookup = Lookup.model_validate(
        {"file": str(file), "key": {"carrier": "code"}, "fields": {"airline": "name"}, **options}
    )
    lookups = {"a": lookup.model_dump(exclude_defaults=True)}
    return PipeRevision(make_pipe(fields={"carrier": "string"}, lookups=lookups), offset)


class PlannedPipes:
    """An engine whose plans are noted in place of being made, with its pipes and lookups."""

    def __init__(self, folder: Path, *revisions: PipeRevision) -> None:
        self.revisions = list(revisions)
        self.plans: list[tuple[Sequence[PipeRevision], PlanInputs]] = []
        self.listeners: list[Callable[[], None]] = []
        self.broadcasts: list[str] = []
        registry: Any = SimpleNamespace(
            usable=lambda: list(self.revisions),
            in_use=lambda: list(self.revisions),
            unreadable_keys=dict,
            on_change=self.listeners.append,
        )
        self.registry = registry
        self.health = Health("enrich", "e-1")
        self.tables = LookupTables(folder, self.health)
        self.engine = SparkEngine(EnrichSettings(), Topics("s"), registry, self.tables, folder)
        vars(self.engine)["_make_plan"] = self.make_plan  # in place of the method
        vars(self.engine)["_compiler"] = SimpleNamespace(in_force=list)
        status: Any = SimpleNamespace(health=self.health)
        self.updater = PlanUpdater(registry, self.engine, status, 0)
        self.tables.on_change(self.updater.notify)
        self.publish(*revisions)

    def publish(self, *revisions: PipeRevision) -> None:
        self.revisions = list(revisions)
        self.registry.content_offset = max(revision.offset for revision in revisions)
        for listener in self.listeners:
            listener()

    def make_plan(self, revisions: Sequence[PipeRevision], inputs: PlanInputs) -> Any:
        self.plans.append((revisions, inputs))
        broadcast = f"plan {len(self.plans)}"
        return SimpleNamespace(pipes_offset=inputs.pipes_offset, broadcasts=lambda: [broadcast])


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def update_during_publication(
    pipes: PlannedPipes, published: PipeRevision, monkeypatch: pytest.MonkeyPatch
) -> asyncio.Task[bool]:
    """An update of the plan that goes on once a revision was published while it read lookups."""
    is_reading, may_read = threading.Event(), threading.Event()
    read_rows = lookup_reader.read_rows

    def read(*arguments: Any) -> Any:
        is_reading.set()
        assert may_read.wait(10)
        return read_rows(*arguments)

    monkeypatch.setattr(lookup_reader, "read_rows", read)
    update_task = asyncio.create_task(pipes.updater.update())
    await until(is_reading.is_set)
    pipes.publish(published)
    may_read.set()
    return update_task


async def test_a_revision_that_arrives_while_lookups_are_loaded_waits_for_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.csv", "b.csv"):
        (tmp_path / name).write_text(CSV)
    pipes = PlannedPipes(tmp_path, revision_with_lookup(tmp_path / "a.csv", 1))
    update_task = await update_during_publication(
        pipes, revision_with_lookup(tmp_path / "b.csv", 2), monkeypatch
    )
    assert await update_task
    assert pipes.engine.pipes_offset == 1
    assert pipes.updater.changed.is_set()
    assert await pipes.updater.update()
    assert pipes.engine.pipes_offset == 2
    for revisions, inputs in pipes.plans:
        assert [revision.offset for revision in revisions] == [inputs.pipes_offset]
        for revision in revisions:
            assert table_ids(revision.pipe) <= inputs.tables.keys()
    await pipes.tables.stop()


async def test_an_error_of_a_declaration_is_not_that_of_the_repaired_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "b.csv").write_text(CSV)
    pipes = PlannedPipes(tmp_path, revision_with_lookup(tmp_path / "missing.csv", 1))
    update_task = await update_during_publication(
        pipes, revision_with_lookup(tmp_path / "b.csv", 2), monkeypatch
    )
    await update_task
    await pipes.updater.update()
    assert [(inputs.pipes_offset, list(inputs.broken)) for _, inputs in pipes.plans] == [(1, ["p"]), (2, [])]
    await pipes.tables.stop()


async def test_a_table_that_expires_while_the_query_runs_breaks_its_pipe(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text(CSV)
    pipes = PlannedPipes(tmp_path, revision_with_lookup(file, 1, refresh=0.1, expire=2))
    assert await pipes.updater.update()
    assert pipes.plans[-1][1].broken == {}
    file.unlink()
    await until(pipes.updater.changed.is_set)
    assert await pipes.updater.update()
    assert "expired" in pipes.plans[-1][1].broken["p"]
    await pipes.tables.stop()


async def test_a_plan_that_nobody_waits_for_ends_before_the_next_one_begins(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    pipes = PlannedPipes(tmp_path, revision_with_lookup(tmp_path / "a.csv", 1))
    assert await pipes.updater.update()
    is_planning, may_end, making = threading.Event(), threading.Event(), list[int]()

    def make_plan(revisions: Sequence[PipeRevision], inputs: PlanInputs) -> Any:
        making.append(1)
        assert sum(making) == 1
        is_planning.set()
        assert may_end.wait(10)
        making.append(-1)
        return pipes.make_plan(revisions, inputs)

    vars(pipes.engine)["_make_plan"] = make_plan
    pipes.publish(revision_with_lookup(tmp_path / "a.csv", 2))
    update_task = asyncio.create_task(pipes.updater.update())
    await until(is_planning.is_set)
    update_task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await update_task
    assert sum(making) == 1  # whoever waited has left at once
    assert pipes.updater.changed.is_set()
    pipes.publish(
        revision_with_lookup(tmp_path / "a.csv", 1)
    )  # the plan in force, whose broadcasts were replaced
    update_task = asyncio.create_task(pipes.updater.update())
    done, _ = await asyncio.wait({update_task}, timeout=0.1)
    assert not done
    assert making == [1]
    may_end.set()
    assert await update_task
    assert pipes.engine.pipes_offset == 1
    assert len(pipes.plans) == 3
    assert pipes.engine._unused_broadcasts == ["plan 2", "plan 1"]
    await pipes.tables.stop()


async def test_a_plan_that_nobody_waits_for_and_that_fails_is_logged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    pipes = PlannedPipes(tmp_path, revision_with_lookup(tmp_path / "a.csv", 1))
    is_planning, may_end = threading.Event(), threading.Event()

    def make_plan(*_: Any) -> Any:
        is_planning.set()
        assert may_end.wait(10)
        raise OSError(28, "No space left on device")

    vars(pipes.engine)["_make_plan"] = make_plan
    update_task = asyncio.create_task(pipes.updater.update())
    await until(is_planning.is_set)
    update_task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await update_task
    vars(pipes.engine)["_make_plan"] = pipes.make_plan
    may_end.set()
    assert await pipes.updater.update()
    assert "plan-not-made" in capsys.readouterr().out
    assert pipes.engine.pipes_offset == 1
    await pipes.tables.stop()
