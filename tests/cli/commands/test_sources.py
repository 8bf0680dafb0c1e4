"""`hifi sources` shows what remains of a backfill, when it ends, and what holds it back."""

import pytest

from hifi_cli.commands.sources import sources_table
from hifi_cli.display.console import console
from hifi_cli.display.tables import print_table
from hifi_cli.display.units import duration


def table_text(**changes: object) -> str:
    row = {
        "pipe": "orders", "backfill": True, "done": 1_500_000, "remaining": 8_500_000, "read_per_s": 2000.0,
        "arriving_per_s": 50.0, "limit_per_s": 2000.0, "late": "", "left_s": 4359,
    } | changes  # fmt: skip
    with console.capture() as captured:
        print_table(sources_table([row], 1_700_000_000), console)
    return " ".join(captured.get().split())


def test_a_backfill_has_figures_with_units_and_an_expected_end() -> None:
    text = table_text()
    for phrase in ("orders", "backfill", "1,500,000", "8,500,000", "2,000", "events", "ev/s", "in 73 min"):
        assert phrase in text
    assert "held back" not in text


def test_what_holds_a_backfill_back_is_named_and_an_end_that_is_not_in_sight_is_said() -> None:
    assert "held back by enrich" in table_text(late="enrich")
    text = table_text(left_s=None)
    assert "not in sight" in text
    assert "live" in table_text(backfill=False)
    assert "in 73 min" not in table_text(backfill=False)


@pytest.mark.parametrize(
    ("seconds", "text"), [(45, "45 s"), (720, "12 min"), (12_000, "3 h 20 min"), (190_000, "2 d 4 h")]
)
def test_durations_have_the_units_that_people_use(seconds: float, text: str) -> None:
    assert duration(seconds) == text
