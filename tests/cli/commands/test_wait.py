"""`hifi wait` says what is missing where, and refuses what it does not understand."""

from datetime import UTC, datetime
from typing import Any

import pytest
from typer.testing import CliRunner

from hifi.runtime.errors import Misconfigured
from hifi_cli.app import command_line
from hifi_cli.commands import wait
from hifi_cli.commands.wait import duration_of, missing_of, moment_of
from hifi_cli.commands.watermark import watermark_table
from hifi_cli.display.console import console
from hifi_cli.display.tables import print_table

WHERE = "3 at egest, 2 waiting for a retry"
NOON_TEXT = "2026-11-27T12:00:00.000Z"
NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)


def row(
    destination: str = "crm", settled_until: str | None = "2026-11-27T12:00:00.000000Z", **overrides: Any
) -> dict[str, Any]:
    numbers = {"in_flight": 0, "waiting": 0, "parked": 0, "services": {}}
    return {
        "pipe": "orders",
        "destination": destination,
        "settled_until": settled_until,
        "first_pass_until": settled_until,
        "open": numbers,
        "event_until": settled_until,
        "event_as_of": settled_until,
        "event_because": [],
        "event_late": {"last_1m": 0, "by_s": 0.0, "open": 0, "newest": []},
        "chain": None,
        "late_1m": 0,
        "verdict": "current",
        "because": [],
    } | overrides


def test_all_destinations_must_be_settled_unless_one_is_named() -> None:
    early = row(
        "lake", "2026-11-27T11:59:58.100000Z", open={"services": {"egest": 3}, "waiting": 2, "parked": 0}
    )
    assert missing_of([row()], "orders", None, NOON) == []
    assert missing_of([row(), early], "orders", "crm", NOON) == []
    assert missing_of([row(), early], "orders", None, NOON) == [
        f"orders to lake: settled until {early['settled_until']}, not {NOON_TEXT}: {WHERE}"
    ]


def test_without_a_statement_it_says_why() -> None:
    assert missing_of([], "orders", None, NOON) == ["orders: nothing is stated yet"]
    unknown = row(settled_until=None, verdict="unknown", because=["not observed: partition 1"])
    assert missing_of([unknown], "orders", None, NOON) == [
        "orders to crm: settled until an unknown time, not 2026-11-27T12:00:00.000Z: not observed: partition 1"
    ]


def test_what_was_settled_stays_settled_although_observe_says_nothing_new() -> None:
    assert missing_of([row(verdict="unknown", because=["silent"])], "orders", None, NOON) == []


def test_event_times_are_settled_once_what_was_acknowledged_before_the_wait_is() -> None:
    early, none = "2026-11-27T11:59:58.100000Z", "an unknown time"
    open_json = {"services": {"egest": 3}, "waiting": 2, "parked": 0}
    late_counts = {"last_1m": 1, "by_s": 7.5, "open": 1, "newest": [{"event": "e:1", "by_s": 7.5}]}

    def missing(**more: Any) -> list[str]:
        return missing_of([row(**more)], "orders", None, NOON, wait_start=NOON)

    assert missing() == []
    for overrides, settled_until, reason in (
        ({"event_until": early, "open": open_json}, early, WHERE),
        ({"event_until": early}, early, "nothing is open; no event with that time or a later one was read"),
        ({"event_as_of": early}, row()["event_until"], "nothing is open; observe has not read so far yet"),
        ({"event_late": late_counts}, row()["event_until"], "1 late ones are open"),
        ({"event_until": None, "event_as_of": None, "event_because": ["why"]}, none, "why"),
        ({"event_until": None, "verdict": "unknown", "because": ["silent"]}, none, "silent"),
    ):
        assert missing(**overrides) == [
            f"orders to crm: events until {settled_until}, not {NOON_TEXT}: {reason}"
        ]


def test_a_chain_is_settled_once_the_pipes_before_it_are_too() -> None:
    chain = {"settled_until": NOON_TEXT, "via": ["flights/legs"], "held_by": None, "because": []}
    assert missing_of([row(chain=chain)], "orders", None, NOON, chain=True) == []
    early, name = "2026-11-27T11:59:58.100000Z", "orders to crm: chain settled until"
    for overrides, settled_until, reason in (
        ({"settled_until": early, "held_by": "topic legs"}, early, "held by topic legs"),
        ({"settled_until": None, "because": ["why"]}, "an unknown time", "why"),
        ({"settled_until": early}, early, "nothing holds it; observe has not read so far yet"),
    ):
        lines = missing_of([row(chain=chain | overrides)], "orders", None, NOON, chain=True)
        assert lines == [f"{name} {settled_until}, not {NOON_TEXT}: {reason}"]
    with pytest.raises(Misconfigured, match="orders reads no Kafka topic that another pipe writes"):
        missing_of([row()], "orders", None, NOON, chain=True)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("soon", "--until 'soon' is not a time; write for example 2026-11-27T12:00Z"),
        ("2026-13-01T00:00Z", "is not a time"),
        ("2026-11-27T12:00", "has no time zone; append Z"),
        ("", "is not a time"),
        ("1700000000", "is not a time"),
    ],
)
def test_a_bad_time_is_refused(text: str, message: str) -> None:
    with pytest.raises(Misconfigured, match=message):
        moment_of(text)


def test_times_may_have_any_zone() -> None:
    assert moment_of("2026-11-27T12:00Z") == moment_of("2026-11-27T13:00:00+01:00") == NOON
    assert moment_of("now").tzinfo is UTC


@pytest.mark.parametrize("text", ["", "soon", "5", "-1s", "1 h", "1e3s"])
def test_a_bad_duration_is_refused(text: str) -> None:
    with pytest.raises(Misconfigured, match=r"--within: .* is not a duration"):
        duration_of(text)
    assert duration_of("1500ms") == 1.5


def test_an_unknown_destination_is_refused() -> None:
    with pytest.raises(Misconfigured, match="orders has no destination 'crn'; it has crm, lake"):
        missing_of([row(), row("lake")], "orders", "crn", NOON)


@pytest.mark.parametrize(
    ("answers", "status"),
    [([[row()]], 0), ([[row(settled_until=None)], [row()]], 0), ([[row(settled_until=None)]], 3)],
)
def test_its_exit_status(
    monkeypatch: pytest.MonkeyPatch, answers: list[list[dict[str, Any]]], status: int
) -> None:
    remaining_answers = list(answers)
    monkeypatch.setattr(wait, "observe_api", lambda *_: None)
    monkeypatch.setattr(
        wait,
        "watermarks_of",
        lambda *_: remaining_answers.pop(0) if len(remaining_answers) > 1 else remaining_answers[0],
    )
    monkeypatch.setattr(wait, "_POLL_S", 0.01)
    arguments = ["wait", "orders", "--until", "2026-11-27T12:00Z", "--within", "50ms"]
    answer = CliRunner().invoke(command_line("wait"), arguments)
    assert answer.exit_code == status, answer.output
    assert ("settled until an unknown time" in answer.output) == bool(status)


def test_the_table_has_a_row_for_each_destination() -> None:
    with console.capture() as capture:
        print_table(
            watermark_table([row(), row("lake", None, because=["not observed: partition 1"])]), console
        )
    text = capture.get()
    assert "11-27 12:00:00" in text
    assert "lake" in text
    assert "chain" not in text
    chain = {"settled_until": None, "via": ["flights/legs"], "held_by": "topic legs", "because": ["why"]}
    with console.capture() as capture:
        print_table(watermark_table([row(chain=chain)]), console)
    assert "chain" in capture.get()
