"""An open minute is shown as it stands, over all partitions, and says nothing of loss."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from hifi_observe.ledger.hops import counts
from hifi_observe.ledger.pipe_minute import PipeMinute
from hifi_observe.ledger.stage import ACCEPTED, RAW, EventStage
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.minutes.open_minute import OpenMinute, OpenMinuteReporter, OpenMinutes

EPOCH = "0" * 16


def pipe_minute(minute: int = 7, *, accepted: int = 5, delivered: int = 3, lag_us: int = 1000) -> PipeMinute:
    minute_counts = PipeMinute("flights", minute)
    minute_counts.show_range(EventStage(ACCEPTED), EPOCH, 0, accepted - 1)
    minute_counts.show([EventStage(RAW)], EPOCH, list(range(accepted)))
    minute_counts.show([EventStage("delivered", "crm")], EPOCH, list(range(delivered)))
    minute_counts.measure("end.accepted/crm", [lag_us] * delivered)
    minute_counts.measure("ingest.process", [200] * accepted)
    minute_counts.span("raw", accepted)
    return minute_counts


def test_an_open_minute_counts_what_came_in_and_what_was_delivered() -> None:
    row = OpenMinute.of(pipe_minute()).json(slo_p95_us=1_000_000)
    assert (row["in"], row["delivered"], row["dead"], row["duplicates"]) == (5, 3, 0, 0)
    assert row["state"] == "provisional"
    assert abs(row["p95_us"] - 1000) <= 10
    assert row["lags"]["ingest.process"] == {"count": 5, "mean": 200.0}


def test_events_that_no_destination_wanted_are_counted() -> None:
    filtered_minute = pipe_minute()
    filtered_minute.show([EventStage("filtered")], EPOCH, [3, 4])
    figures = OpenMinute.of(filtered_minute)
    assert figures.json(0)["filtered"] == 2
    figures.add(OpenMinute.load(figures.dump()))
    assert figures.filtered == 4
    assert counts(filtered_minute)["egest", "", "filtered"] == 2


def test_an_open_minute_says_nothing_of_loss() -> None:
    row = OpenMinute.of(pipe_minute()).json(slo_p95_us=1_000_000)
    assert row["lost"] is None
    assert row["in_flight"] is None


def test_a_second_delivery_of_the_same_event_is_a_duplicate() -> None:
    repeated_minute = pipe_minute()
    repeated_minute.show([EventStage("delivered", "crm")], EPOCH, [0])
    row = OpenMinute.of(repeated_minute).json(0)
    assert (row["delivered"], row["duplicates"]) == (3, 1)


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 50)), min_size=1, max_size=4))
def test_the_partitions_of_a_minute_are_added_up(partition_counts: list[tuple[int, int]]) -> None:
    minutes = OpenMinutes()
    for partition, (accepted, delivered) in enumerate(partition_counts):
        minute = pipe_minute(accepted=accepted, delivered=min(accepted, delivered))
        minutes.take(partition, OpenMinuteReporter().report([minute]))
    (total,) = minutes.of("flights")
    assert total.events_in == sum(accepted for accepted, _ in partition_counts)
    assert total.delivered == sum(min(counts) for counts in partition_counts)
    assert len(total.lags) == total.delivered


def test_only_minutes_that_changed_are_reported_again() -> None:
    reporter, first_minute, second_minute = OpenMinuteReporter(), pipe_minute(7), pipe_minute(8)
    assert [row["minute"] for row in reporter.report([first_minute, second_minute])] == [8, 7]
    assert reporter.report([first_minute, second_minute]) == []
    second_minute.show([EventStage("delivered", "crm")], EPOCH, [0])
    assert [row["minute"] for row in reporter.report([first_minute, second_minute])] == [8]


def test_an_instance_that_starts_late_gets_every_open_minute_in_the_end() -> None:
    reporter, minute = OpenMinuteReporter(), pipe_minute()
    reporter.report([minute])
    reports = [reporter.report([minute]) for _ in range(30)]
    assert [row["minute"] for rows in reports for row in rows] == [7]


def test_a_closed_minute_is_no_longer_provisional() -> None:
    store = MinuteStore()
    store.take(
        b"open/0", b'{"rows": %s}' % _json(OpenMinuteReporter().report([pipe_minute(7), pipe_minute(8)]))
    )
    assert store.open_minutes.known("flights") == {7, 8}
    closed_record = b'{"state":"up","in":1,"delivered":1,"dead":0,"lost":0,"late":0,"at_us":1,"causes":[]}'
    store.take(b"minute/flights/7", closed_record)
    assert store.open_minutes.known("flights") == {8}
    # A report that was on its way when the minute closed does not bring it back.
    store.take(b"open/0", b'{"rows": %s}' % _json(OpenMinuteReporter().report([pipe_minute(7)])))
    assert store.open_minutes.known("flights") == {8}


def _json(rows: list[dict[str, object]]) -> bytes:
    return orjson.dumps(rows)
