"""The pipes of a report and their owners: as of the month, not as of now."""

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import orjson
from tests.support.observe.stream_double import pipe

from hifi.kafka.topics import Topics
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.revision import pipe_record
from hifi.runtime.clock import now_us
from hifi.runtime.health import Health
from hifi_observe.colours.colours_history import ColoursHistory
from hifi_observe.minutes import record_keys
from hifi_observe.minutes.availability import DAY_MINUTES
from hifi_observe.minutes.day_record import KEPT_DAYS, DayRecord, MinuteState, StateSpan
from hifi_observe.minutes.merger import MinuteMerger
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.minutes.named_ids import EventId, NamedIds
from hifi_observe.pipes import ObservedPipes
from hifi_observe.reports.month import Month, month_before, month_of
from hifi_observe.settings import ObserveSettings
from hifi_observe.web.report_answers import ReportAnswers

NOW = now_us() // 60_000_000
LAST = month_of(month_before(NOW), NOW)
BEFORE = month_of(month_before(LAST.first), NOW)
A, B = {"email": "a@example.com"}, {"email": "b@example.com", "webhook": "https://hooks.example.com/path"}
UP = MinuteState("up")


class Observed:
    """The declarations of a stream, and the records of its months."""

    def __init__(self) -> None:
        self.store = MinuteStore()
        self.registry = PipeRegistry("nowhere:1", Topics("s"), Health("test", "test-1"))
        self.pipes = ObservedPipes(self.registry, self.store, 10)
        self.store.take(record_keys.closed(0), orjson.dumps({"minute": NOW - 10}))
        self.merger = MinuteMerger(
            self.store,
            1,
            self.pipes.limits_of,
            self.pipes.first_minute,
            keep_h=48,
            amend_s=3600,
            owners=self.pipes.owner_names,
        )

    def declare(self, name: str, at_minute: int, owner: dict[str, str] | None) -> None:
        declared_pipe = pipe(name) if owner is None else pipe(name, owner=owner)
        record = pipe_record(declared_pipe)
        self._apply(record.key, record.value, at_minute)

    def delete(self, name: str) -> None:
        self._apply(name.encode(), None, NOW)

    def _apply(self, key: bytes | None, value: bytes | None, at_minute: int) -> None:
        offset = self.registry.offset + 1
        self.registry._apply(
            SimpleNamespace(key=key, value=value, offset=offset, timestamp=at_minute * 60_000)
        )

    def record(self, name: str, first: int, end: int) -> None:
        """Minutes that are up, as a release before this one recorded them."""
        for number in range(first // DAY_MINUTES, -(-end // DAY_MINUTES)):
            length = min(DAY_MINUTES, end - number * DAY_MINUTES)
            day = DayRecord((StateSpan(0, length, UP),))
            self.store.take(record_keys.day(name, number), orjson.dumps(day.dump()))

    def close(self, name: str, minute: int) -> None:
        """Close minutes up to this one and merge them."""
        marker = {"minute": minute, "gaps": {str(minute): 1}}
        self.store.take(record_keys.closed(0), orjson.dumps(marker))
        for key, value in self.merger.merge(name):
            self.store.take(key, None if value is None else orjson.dumps(value))

    def report(self, month: Month, *, owner: str = "", pipe: str = "") -> dict[str, dict[str, Any]]:
        """Pipe to its row of the report."""
        answers = ReportAnswers(
            ObserveSettings(kafka="nowhere:1", stream="s", instance="test-1"),
            self.store,
            self.pipes,
            SimpleNamespace(count=1),  # type: ignore[arg-type]
            ColoursHistory(self.store),
            None,
        )
        answer = answers.report(month.name, pipe, owner, lambda _: True)
        return {row["pipe"]: dict(row) for row in answer["pipes"]}


def test_the_owner_of_the_month_has_the_pipe_in_the_report_although_it_was_given_away_or_deleted() -> None:
    observed = Observed()
    for name in ("given", "deleted"):
        observed.declare(name, BEFORE.first, A)
        observed.close(name, LAST.first + 100)
    observed.declare("given", NOW, B)
    observed.delete("deleted")
    observed.close("given", max(LAST.end, NOW - 10))
    observed.close("deleted", max(LAST.end, NOW - 10))
    rows = observed.report(LAST, owner="a@example.com")
    assert {name: row["owner"] for name, row in rows.items()} == dict.fromkeys(
        ("given", "deleted"), A["email"]
    )
    month = month_of(datetime.fromtimestamp(NOW * 60, UTC).strftime("%Y-%m"), NOW)
    assert {
        name: row["owner"] for name, row in observed.report(month, owner="hooks.example.com").items()
    } == {"given": "b@example.com"}
    assert observed.report(LAST)["given"]["owner"] == "a@example.com"


def test_an_amendment_does_not_give_a_day_to_the_next_owner() -> None:
    observed = Observed()
    observed.declare("flights", BEFORE.first, A)
    observed.close("flights", LAST.first + 100)
    observed.declare("flights", NOW, B)
    observed.close("flights", LAST.first + DAY_MINUTES)
    days = observed.store.days["flights"]
    number = LAST.first // DAY_MINUTES
    assert (days[number].owners, days[number + 1].owners) == (
        ("a@example.com",),
        ("b@example.com", "hooks.example.com", "https://hooks.example.com/path"),
    )


def test_days_of_a_release_before_count_for_the_owner_of_now() -> None:
    observed = Observed()
    observed.declare("flights", BEFORE.first, A)
    observed.record("flights", LAST.first, LAST.end)
    assert list(observed.report(LAST, owner="a@example.com")) == ["flights"]


def test_a_pipe_that_did_not_exist_in_the_month_is_not_reported() -> None:
    observed = Observed()
    observed.declare("old", BEFORE.first, None)
    observed.declare("late", LAST.first + 5, None)
    observed.declare("new", NOW - 5, None)
    observed.record("old", BEFORE.first, LAST.end)
    observed.record("late", LAST.first + 7 * DAY_MINUTES, LAST.end)
    observed.record("deleted", BEFORE.first, BEFORE.end)
    assert list(observed.report(BEFORE)) == ["deleted", "old"]
    assert list(observed.report(LAST)) == ["late", "old"]
    row = observed.report(LAST, pipe="new")["new"]
    assert row["minutes"]["unknown"] == LAST.end - LAST.first, "who asks for it gets it"


def test_a_pipe_that_existed_is_reported_although_nothing_of_the_month_is_recorded() -> None:
    observed = Observed()
    observed.declare("flights", NOW - 5, None)
    observed.record("flights", BEFORE.first, BEFORE.end)
    assert list(observed.report(LAST)) == ["flights"]


def test_of_months_that_are_no_longer_kept_it_is_not_said_that_a_pipe_did_not_exist() -> None:
    observed = Observed()
    observed.declare("flights", NOW - 5, None)
    oldest_minute = ((NOW - 10) // DAY_MINUTES - KEPT_DAYS) * DAY_MINUTES
    observed.record("flights", oldest_minute, oldest_minute + DAY_MINUTES)
    month = month_of(month_before(oldest_minute), NOW)
    row = observed.report(month)["flights"]
    assert [span["reasons"] for span in row["unknown"]] == [["no-longer-kept"]]


def test_ids_of_a_deleted_pipe_are_hidden_because_it_was_deleted() -> None:
    observed = Observed()
    observed.record("deleted", LAST.first, LAST.end)
    ids = NamedIds((EventId("egest", "crm", 0, "a" * 16, 1),), (), 1, 0, {f"{'a' * 16}:1": "order-1"})
    observed.store.take(record_keys.ids("deleted", LAST.first), orjson.dumps(ids.dump()))
    row = observed.report(LAST)["deleted"]
    assert (row["ids_hidden"], row["ids_hidden_because"]) == (True, "the pipe was deleted")
    assert row["lost"][0]["id"] is None
