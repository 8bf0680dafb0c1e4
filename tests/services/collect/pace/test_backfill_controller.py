"""All backfills yield to a late stage at once, and only backfills."""

from types import SimpleNamespace

import pytest
from prometheus_client import REGISTRY

from hifi.delivery.stage_lag import StageReading
from hifi.delivery.stage_monitor import StageReadings
from hifi.pipe.sources.collected import Backfill
from hifi_collect.pace import backfill_controller
from hifi_collect.pace.backfill_controller import BackfillController
from hifi_collect.pace.backfill_rate import CPU, START
from hifi_collect.settings import CollectSettings


def readings(**lag_s: float) -> StageReadings:
    stages = [StageReading(name, 1.0, late_s, 10, 10, 6.0, True) for name, late_s in lag_s.items()]
    return StageReadings(0.0, stages, 0.0)


async def test_every_source_with_a_backfill_yields_to_the_latest_stage_and_to_scarce_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interval = SimpleNamespace(seconds=0.02)
    monkeypatch.setattr(backfill_controller, "FETCH_INTERVAL", interval)
    controller = BackfillController(CollectSettings(), 4)
    with (
        controller.source_pace("filling", Backfill(rate=1000)) as filling,
        controller.source_pace("live", Backfill(rate=1000)) as live,
    ):
        await filling.turn(1)
        controller._adjust(readings(normalize=1.5, enrich=4.0, egest=0.2))
        assert filling.rate.late == "enrich"
        assert filling.rate.per_s < 1000 * START
        assert (live.rate.late, live.rate.per_s) == ("", 1000 * START)
        slow_per_s = filling.rate.per_s
        controller._adjust(readings(normalize=0.5, enrich=0.9))
        assert filling.rate.late == ""
        assert filling.rate.per_s > slow_per_s
        interval.seconds = 0.05
        controller._adjust(readings(normalize=0.5, enrich=0.9))
        assert filling.rate.late == CPU


async def test_metrics_have_the_sources_that_are_read() -> None:
    def left_s(pipe: str) -> float | None:
        return REGISTRY.get_sample_value("hifi_collect_source_left_seconds", {"pipe": pipe})

    controller = BackfillController(CollectSettings(), 4)
    with controller.source_pace("metered", Backfill()):
        assert set(controller.reports()) == {"metered"}
        assert left_s("metered") == 0
    assert controller.reports() == {}
    assert left_s("metered") is None
