"""Which failures only the owner of a pipe can end."""

from typing import Any

import pytest

from hifi.pipe.model import Pipe
from hifi.pipe.normalize.program import compile_pipe
from hifi.runtime.errors import Rejected
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


@pytest.mark.parametrize(
    ("normalize", "data", "reason", "place"),
    [
        ({"fields": {"n": {"cast": "integer"}}}, b'{"n":"x"}', "cast", "/n"),
        ({"fields": {"at": {"time": {}}}}, b'{"at":"yesterday"}', "time", "/at"),
        ({"fields": {"n": {"required": True}}}, b"{}", "required", "/n"),
        ({"fields": {"a.b": "n"}, "keep": "all"}, b'{"a":[1],"n":2}', "mapping-failed", "/a"),
        ({"schema": {"type": "object", "required": ["n"]}}, b"{}", "schema", "the data as a whole"),
        ({"fields": {"n": "n"}}, b"[]", "not-an-object", "the data as a whole"),
        ({"fields": {"n": "n"}}, b"{", "not-json", "the data as a whole"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_refusal_for_the_content_of_an_event_counts(
    normalize: dict[str, Any], data: bytes, reason: str, place: str
) -> None:
    pipe = Pipe.model_validate(
        {
            "pipe": "flights",
            "source": {"keys": [{"sha256": "0" * 64}]},
            "normalize": normalize,
            "destinations": [{"name": "d", "url": "http://127.0.0.1:9/"}],
        }
    )
    with pytest.raises(Rejected) as caught:
        compile_pipe(pipe).run(data, b"application/json")
    refused_events = RefusedEvents()
    for _ in range(5):
        refused_events.add("flights", caught.value.reason, caught.value.pointer, NOW_MS)
    [cause] = refused_events.conditions({"flights": None}, NOW_MS).values()
    assert cause == f"5 events in 10 minutes were refused at {place} ({reason}, 5)"


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
