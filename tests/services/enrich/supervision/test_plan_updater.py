"""The plan is kept up to date: which revisions are quarantined, and what happens when no plan can be made."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.enrich.spark_bench import make_headers, make_pipe

from hifi.pipe.revision import PipeRevision
from hifi.record.headers import REVISION, REVISION_OFFSET
from hifi.runtime.health import Health
from hifi_enrich.poison.poisoned_pipes import MAX_POISON_RECORDS
from hifi_enrich.query.engine import LoadedPipes
from hifi_enrich.supervision import query_runner
from hifi_enrich.supervision.plan_updater import PlanUpdater
from hifi_enrich.supervision.query_runner import QueryRunner
from hifi_enrich.supervision.run_monitor import StopReason

CURRENT = PipeRevision(make_pipe("orders"), 10, 1)
NEXT = PipeRevision(make_pipe("orders"), 25, 2, current=False)


class FailingEngine:
    """Makes a plan when it has failed to, these times."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures

    async def load_lookups(self) -> LoadedPipes:
        return LoadedPipes([CURRENT, NEXT], 25, {}, {})

    async def update_plan(self, *_: Any) -> bool:
        self.failures -= 1
        if self.failures >= 0:
            raise OSError(28, "No space left on device")
        return True


def updater(engine: FailingEngine) -> PlanUpdater:
    def of_revision(name: str, number: int) -> PipeRevision | None:
        return None if name != "orders" else NEXT if number == 2 else CURRENT

    registry: Any = SimpleNamespace(
        of_revision=of_revision, in_use=lambda: [CURRENT, NEXT], on_change=lambda _: None
    )
    status: Any = SimpleNamespace(health=Health("enrich", "e-1"))
    return PlanUpdater(registry, engine, status, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(("number", "key"), [(b"1", "orders"), (b"2", "orders;2"), (b"7", "orders")])
def test_poison_records_count_against_the_revision_that_the_plan_takes_for_them(
    number: bytes, key: str
) -> None:
    plans = updater(FailingEngine())
    headers = make_headers("orders", 0, 1, **{REVISION: number, REVISION_OFFSET: b"0"})
    for count in range(1, MAX_POISON_RECORDS + 1):
        assert plans._quarantined([CURRENT, NEXT]) == {}
        assert plans.count_poison(headers) == (count == MAX_POISON_RECORDS)
        assert not plans.count_poison(make_headers("deleted"))
        assert not plans.count_poison([("hifi", b"no event")])
    assert list(plans._quarantined([CURRENT, NEXT])) == [key]
    assert not plans.count_poison(headers)  # the plan in force quarantines the revision already


async def test_a_plan_that_cannot_be_made_is_made_again_while_the_query_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(query_runner, "_PLAN_RETRY_S", 0.0)
    plans = updater(FailingEngine(failures=2))
    stops: list[StopReason] = []
    parts: dict[str, Any] = dict.fromkeys(
        ("settings", "topics", "registry", "engine", "election", "status", "tables")
    )
    runner = QueryRunner(**parts, plans=plans)
    monitor: Any = SimpleNamespace(request_stop=stops.append)
    plans.notify()
    async with asyncio.timeout(10):
        await runner._stop_when_plan_changed(monitor)
    assert stops == [StopReason.PLAN_CHANGED]
    assert plans._status.health.warnings == {}


async def test_a_plan_that_cannot_be_made_is_reported_and_out_of_date() -> None:
    plans = updater(FailingEngine(failures=1))
    with pytest.raises(OSError, match="No space left"):
        await plans.update()
    assert plans.changed.is_set()
    assert "No space left" in plans._status.health.warnings["plan"]
