"""Usage of two colours is added up by day, pipe and key; what no key has is shown once the day is closed."""

from typing import Any

from rich.console import Console

from hifi_cli.commands.usage import added_up, usage_table


def row(
    day: str, pipe: str, units: tuple[int, int, int], state: str = "final", **keys: int
) -> dict[str, Any]:
    return {
        "day": day,
        "pipe": pipe,
        "events": units[0],
        "bytes": units[1],
        "deliveries": units[2],
        "state": state,
        "keys": [{"key": key, "events": count, "bytes": 10 * count} for key, count in keys.items()],
    }


def test_the_colours_are_added_up_and_a_day_is_as_certain_as_the_less_certain_one() -> None:
    blue = [row("2026-11-01", "orders", (3, 30, 4), a=2, b=1), row("2026-11-02", "orders", (1, 9, 1))]
    green = [
        row("2026-11-01", "orders", (5, 50, 5), "open", b=3, c=2),
        row("2026-11-01", "flights", (1, 1, 0)),
    ]
    expected = [
        row("2026-11-01", "flights", (1, 1, 0)),
        row("2026-11-01", "orders", (8, 80, 9), "open", a=2, b=4, c=2),
        row("2026-11-02", "orders", (1, 9, 1)),
    ]
    assert added_up([blue, green]) == expected
    assert added_up([green, blue]) == expected
    assert added_up([blue]) == blue


def test_the_table_shows_what_no_key_has_unless_the_day_is_open() -> None:
    def table_rows(state: str, **keys: int) -> list[list[str]]:
        console = Console(width=200)
        with console.capture() as capture:
            console.print(usage_table([row("2026-11-01", "orders", (5000, 50_000, 6), state, **keys)]))
        return [line.split() for line in capture.get().splitlines()[2:]]

    assert table_rows("final", a=4998) == [
        ["2026-11-01", "orders", "all", "5,000", "50,000", "6", "final"],
        ["a", "4,998", "49,980", "-"],
        ["without", "a", "key", "2", "20", "-"],
    ]
    assert len(table_rows("open", a=4998)) == len(table_rows("closed", a=5000)) == 2
    assert len(table_rows("final")) == 1, "a source has no keys"
