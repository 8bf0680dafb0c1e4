import io

from rich.console import Console

from hifi_cli.commands.lost import lost_table


def test_ids_are_shown_without_interpreting_markup():
    ids = ["order[abc]-1", "a[/x]", "[red]b"]
    lost = [
        {
            "ce_id": one,
            "hop": "normalize",
            "destination": "",
            "partition": 0,
            "epoch": "f" * 16,
            "sequence": 1,
        }
        for one in ids
    ]
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(lost_table({"count": 3, "hidden": False, "lost": lost}))
    text = console.export_text()
    assert all(one in text for one in ids), text
