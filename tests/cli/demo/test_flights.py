"""The expected deliveries of the demo, checked against the source data."""

from collections import Counter

import pytest

from hifi.pipe import loader
from hifi_cli.demo import flights
from hifi_cli.demo.expected import ALERTS, CANCELLATIONS, DEPARTURES, Expected
from hifi_cli.demo.workspace import PIPE, Workspace


@pytest.fixture(scope="module")
def rows():
    return dict(flights.rows(3000))


@pytest.fixture(scope="module")
def expected():
    return Expected("key")


@pytest.mark.slow
def test_every_flight_is_sent_once_before_any_is_sent_again():
    ids = [name for name, _ in flights.rows(flights.FLIGHTS + 2)]
    assert len(set(ids)) == len(ids)
    assert ids[0] == "flight-0"
    assert ids[flights.FLIGHTS] == "flight-0-1"


def test_the_flights_that_are_sent_are_spread_over_the_year(rows):
    assert set(Counter(row["month"] for row in rows.values())) == {str(month) for month in range(1, 13)}


def test_each_flight_goes_where_the_pipe_says(rows, expected):
    destination_counts = Counter(frozenset(expected.deliveries(name, row)) for name, row in rows.items())
    assert set(destination_counts) == {
        frozenset({DEPARTURES}), frozenset({DEPARTURES, ALERTS}), frozenset({CANCELLATIONS, ALERTS})
    }  # fmt: skip
    cancelled = sum(row["dep_time"] == flights.MISSING for row in rows.values())
    assert destination_counts[frozenset({CANCELLATIONS, ALERTS})] == cancelled > 0


def test_one_flight_as_it_must_arrive(expected):
    [(name, row)] = flights.rows(1)
    data = expected.deliveries(name, row)[DEPARTURES]
    assert data["scheduled"] == "2013-01-01T10:15:00.000000Z", "05:15 in New York in winter"
    assert data["hour"] == "2013-01-01T10:00:00.000000Z"
    assert (data["airline"], data["dest_name"]) == ("United Air Lines Inc.", "George Bush Intercontinental")
    assert (data["plane"], data["seats"], data["temp_f"]) == ("737-824", 149, 39.02)
    assert (data["speed_mph"], data["severity"], data["cancelled"]) == (370, "as planned", False)
    assert "phone" not in data["agent"]
    assert data["agent"]["desk"] == "[redacted]"
    assert "EWR-UA" not in str(data["agent"])


def test_the_pipe_of_the_demo_is_valid(tmp_path):
    workspace = Workspace.at(tmp_path)
    [pipe] = workspace.pipes()
    assert pipe.pipe == "flights"
    assert {str(destination.model_dump()["url"]) for destination in pipe.destinations} == {
        f"http://127.0.0.1:{workspace.destination_port}{path}" for path in (DEPARTURES, CANCELLATIONS, ALERTS)
    }
    assert (PIPE / "flights.yaml").read_text().startswith("# yaml-language-server: $schema=")
    assert loader.load(PIPE)[1] == []
