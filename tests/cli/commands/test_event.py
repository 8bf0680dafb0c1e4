import io

from rich.console import Console

from hifi_cli.commands.event import event_table


def table_rows(**changes: object) -> list[str]:
    """The rows of the table, without rules."""
    console = Console(width=250, record=True, file=io.StringIO())
    event: dict[str, object] = {
        "partition": 1,
        "offset": 7,
        "wanted": None,
        "not_wanted": [],
        "outcomes": [],
        "provisional": False,
    }
    console.print(event_table(event | changes))
    return console.export_text().splitlines()


def test_each_destination_of_an_event_has_its_outcome_or_why_there_is_none() -> None:
    outcomes = [
        {"destination": "crm", "outcome": "delivered", "reason": "", "release": "1.2.3", "at_ms": 1},
        {"destination": "a[b]", "outcome": "dead-letter", "reason": "value", "at_ms": 2},
    ]
    rows = table_rows(wanted=["crm", "a[b]", "late"], not_wanted=["paid"], outcomes=outcomes)
    assert any("crm" in row and "delivered" in row and "1.2.3" in row for row in rows)
    assert any("a[b]" in row and "dead-letter" in row and "value" in row for row in rows)
    assert any("paid" in row and "not wanted" in row and "`when`" in row for row in rows)
    assert any("late" in row and "open" in row for row in rows)
    assert not any(
        "late" in row or "paid" in row for row in table_rows(wanted=["crm"], outcomes=outcomes[:1])
    )


def test_an_event_that_enrich_has_not_written_is_open() -> None:
    assert any("enrich has not written it" in row for row in table_rows())
    assert not any("enrich" in row for row in table_rows(wanted=[], outcomes=[]))


def test_an_event_of_an_open_minute_is_called_open_and_not_lost() -> None:
    rows = table_rows(provisional=True)
    assert any("so far: the minute is still open" in row for row in rows)
    assert not any("lost" in row for row in rows)
    assert any("lost" in row for row in table_rows())
    assert not any("still open" in row for row in table_rows())
