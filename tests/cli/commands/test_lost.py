import io

from rich.console import Console

from hifi_cli.commands.lost import lost_table


def test_ids_are_shown_without_interpreting_markup():
    ids = ["order[abc]-1", "a[/x]", "[red]b"]
    lost_events = [
        {
            "ce_id": event_id,
            "hop": "normalize",
            "destination": "",
            "partition": 0,
            "epoch": "f" * 16,
            "sequence": 1,
        }
        for event_id in ids
    ]
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(lost_table({"count": 3, "hidden": False, "lost": lost_events}))
    text = console.export_text()
    assert all(event_id in text for event_id in ids), text
