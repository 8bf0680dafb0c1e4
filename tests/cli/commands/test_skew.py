"""`hifi skew` shows both distributions, and says why there is no verdict."""

from hifi_cli.commands.skew import skew_table
from hifi_cli.display.console import console
from hifi_cli.display.tables import print_table


def field(**changes: object) -> dict[str, object]:
    bucket = {"label": "[a] b", "window": 80, "window_share": 0.8, "reference": 1200, "reference_share": 0.25}
    return {
        "field": "score",
        "state": "drifted",
        "distance": 0.314,
        "threshold": 0.1,
        "needed": {"half_window": 200, "reference": 1000},
        "window": {"from": 1, "to": 30},
        "buckets": [bucket],
    } | changes


def table_text(drift: dict[str, object]) -> str:
    with console.capture() as captured:
        print_table(skew_table(drift), console)
    return " ".join(captured.get().split())


def test_shares_and_events_of_each_bucket_are_shown() -> None:
    text = table_text(field())
    assert "score: drifted (distance 0.31, a drift from 0.1)" in text
    assert "last 30 min" in text
    assert "[a] b 80.0 % 25.0 % 80 1,200" in text


def test_too_few_events_are_said_with_the_number_that_is_needed() -> None:
    bucket = {"label": "x", "window": 0, "window_share": None, "reference": 0, "reference_share": None}
    text = table_text(field(state="too few events", distance=None, buckets=[bucket]))
    assert "too few events (200 needed in each half of the window, 1,000 before it)" in text
    assert "x - - 0 0" in text
