"""A minute is up only when its deliveries were on time, nothing was lost and ingest was there."""

import pytest

from hifi_observe.ledger.sketch import Sketch
from hifi_observe.minutes.availability import (
    DestinationLimits,
    IngestHealth,
    JudgedDeliveries,
    SloLimits,
    judge,
    uptime,
)

LIMITS = SloLimits(p95_us=1_000_000, loss=0)


def lags(*values: int) -> Sketch:
    sketch = Sketch()
    sketch.extend(values)
    return sketch


@pytest.mark.parametrize(
    ("sketch", "undelivered", "age_us", "lost", "gap_s", "state", "causes"),
    [
        (lags(*[1000] * 100), 0, 0, 0, 1, "up", []),
        (lags(*[1000] * 100), 4, 300_000_000, 0, 1, "up", []),
        (lags(*[1000] * 100), 10, 300_000_000, 0, 1, "down", ["lag"]),
        (lags(*[1000] * 100), 10, 500_000, 0, 1, "up", []),
        (lags(*[2_000_000] * 10), 0, 0, 0, 1, "down", ["lag"]),
        (lags(*[1000] * 100), 1, 1_000, 1, 1, "down", ["loss"]),
        (lags(), 0, 0, 0, 30, "down", ["ingest"]),
        (lags(), 0, 0, 0, 1, "up", []),
        (lags(), 0, 0, 0, None, "unknown", []),
    ],
)
def test_the_state_of_a_minute(sketch, undelivered, age_us, lost, gap_s, state, causes) -> None:
    judgement = judge(JudgedDeliveries(sketch, undelivered, lost), age_us, LIMITS, IngestHealth(gap_s))
    assert (judgement.state, judgement.causes) == (state, causes)


@pytest.mark.parametrize(
    ("failed", "answered", "state"), [(0, 0, "up"), (1, 100, "up"), (2, 100, "down"), (1, 1, "down")]
)
def test_a_minute_in_which_more_than_a_hundredth_of_the_answers_failed_is_down(
    failed, answered, state
) -> None:
    judgement = judge(JudgedDeliveries(lags(*[1000] * 100)), 0, LIMITS, IngestHealth(0, failed, answered))
    assert (judgement.state, judgement.causes) == (state, ["ingest"] if state == "down" else [])


@pytest.mark.parametrize(
    ("lag_us", "lost", "causes"), [(60_000_000, 0, []), (200_000_000, 0, ["lag"]), (1000, 3, ["loss"])]
)
def test_a_destination_with_an_objective_of_its_own_is_judged_by_that_one(lag_us, lost, causes) -> None:
    limited_deliveries = JudgedDeliveries(lags(*[lag_us] * 10), lost, lost), DestinationLimits(180_000_000, 2)
    judgement = judge(JudgedDeliveries(lags(1000)), 0, LIMITS, IngestHealth(1), [limited_deliveries])
    assert judgement.causes == causes
    assert judgement.p95_us < LIMITS.p95_us


def test_nines_count_known_minutes_only() -> None:
    month = uptime(["up"] * 9990 + ["down"] * 10 + ["unknown"] * 500)
    assert month.share == pytest.approx(0.999)
    assert month.nines == pytest.approx(3.0)
    assert month.left(0.999, 43_200) == pytest.approx(33.2)
    assert uptime(["unknown"]).share is None
    assert uptime(["down"]).nines == 0.0
