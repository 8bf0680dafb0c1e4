"""Which failures only the owner of a pipe can end."""

import pytest

from hifi_observe.alarms.owner_conditions import WINDOW_S, RefusedEvents, owner_condition

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ("401", "credentials"),
        ("403", "credentials"),
        ("404", "endpoint-moved"),
        ("410", "endpoint-moved"),
        ("301", "endpoint-moved"),
        ("dns", "endpoint-moved"),
        ("503", None),
        ("429", None),
        ("timeout", None),
    ],
)
def test_a_destinations_answer_tells_what_its_owner_has_to_do(answer: str, kind: str | None) -> None:
    conditions = owner_condition("flights", "crm", answer, 12)
    assert list(conditions) == ([(kind, "flights", "crm")] if kind else [])


def test_refused_events_are_one_condition_of_the_pipe_that_names_the_places() -> None:
    refused_events = RefusedEvents()
    for number in range(4):
        refused_events.add("flights", "required", "/from", NOW_MS - number * 1000)
    assert refused_events.conditions({"flights": None}, NOW_MS) == {}
    refused_events.add("flights", "cast", "/delay", NOW_MS)
    refused_events.add("flights", "mask-unavailable", "/name", NOW_MS)  # no fault of the sender
    [(key, cause)] = refused_events.conditions({"flights": None}, NOW_MS).items()
    assert key == ("events-refused", "flights", "")
    assert cause == "5 events in 10 minutes were refused at /from (required, 4), /delay (cast, 1)"
    assert refused_events.conditions({"flights": None}, NOW_MS + (WINDOW_S + 60) * 1000) == {}


def test_a_deleted_pipe_is_forgotten_and_the_number_of_places_is_bounded() -> None:
    refused_events = RefusedEvents()
    for number in range(5000):
        refused_events.add("flights", "schema", f"/field-{number}", NOW_MS)
    [cause] = refused_events.conditions({"flights": None}, NOW_MS).values()
    assert "5,000 events" in cause
    assert "other places (4,000)" in cause
    assert len(cause) < 600
    assert refused_events.conditions({}, NOW_MS) == {}
    assert refused_events.conditions({"flights": None}, NOW_MS) == {}
