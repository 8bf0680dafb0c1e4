"""Over two colours the earlier time counts, and none if a colour does not answer."""

from tests.services.observe.watermark.test_statement import NOW_US, S, part, stated

from hifi_observe.watermark.both_colours import merge_watermarks
from hifi_observe.watermark.chains import ChainJson
from hifi_observe.watermark.statement import Times, Watermark, iso

BLUE: Watermark = stated(part(), part())
GREEN: Watermark = stated(part(), part(reached=NOW_US - 4 * S))


def test_the_earlier_time_counts() -> None:
    (watermark,) = merge_watermarks({"blue": [BLUE], "green": [GREEN]}, NOW_US)
    assert watermark["settled_until"] == iso(NOW_US - 4 * S)
    assert watermark["verdict"] == "current"


def test_a_colour_that_is_asleep_is_left_out() -> None:
    assert merge_watermarks({"blue": [BLUE]}, NOW_US) == [BLUE]


def test_a_colour_that_is_asleep_counts_where_it_has_parked_deliveries() -> None:
    asleep_us = NOW_US - 3600 * S
    green: Watermark = {
        **GREEN,
        "settled_until": iso(asleep_us - 60 * S),
        "first_pass_until": iso(asleep_us),
        "as_of": iso(asleep_us + S),
        "valid_until": iso(asleep_us + 11 * S),
        "open": {"in_flight": 0, "waiting": 0, "parked": 3, "services": {"retrier": 3}},
    }
    (watermark,) = merge_watermarks({"blue": [BLUE]}, NOW_US, asleep={"green": [green]})
    assert (watermark["settled_until"], watermark["open"]["parked"]) == (iso(asleep_us - 60 * S), 3)
    assert watermark["first_pass_until"] == BLUE["first_pass_until"], "parked deliveries have been tried"
    assert (watermark["as_of"], watermark["valid_until"]) == (BLUE["as_of"], BLUE["valid_until"])
    assert watermark["because"] == [
        "green: it is asleep with 3 parked deliveries, which come back when it wakes"
    ]
    held: Watermark = {**green, "first_pass_until": iso(asleep_us - 60 * S)}
    (watermark,) = merge_watermarks({"blue": [BLUE]}, NOW_US, asleep={"green": [held]})
    assert watermark["first_pass_until"] == iso(asleep_us - 60 * S), "something else was open"
    deleted: Watermark = {**green, "destination": "deleted"}
    assert merge_watermarks({"blue": [BLUE]}, NOW_US, asleep={"green": [deleted]}) == [BLUE]
    unreadable = {"pipe": green["pipe"], "open": {"parked": 3}}
    (watermark,) = merge_watermarks({"blue": [BLUE]}, NOW_US, asleep={"green": [unreadable]})
    assert (watermark["settled_until"], watermark["verdict"]) == (None, "unknown")


def test_a_colour_that_does_not_answer_or_states_nothing_makes_it_unknown() -> None:
    for answer, reason in (("no answer", "green: no answer"), ([], "green: nothing is stated there")):
        (watermark,) = merge_watermarks({"blue": [BLUE], "green": answer}, NOW_US)
        assert (watermark["settled_until"], watermark["verdict"]) == (None, "unknown")
        assert watermark["because"] == [reason]


def test_a_colour_without_a_time_makes_the_time_unknown() -> None:
    unobserved = stated(part())
    (watermark,) = merge_watermarks({"blue": [BLUE], "green": [unobserved]}, NOW_US)
    assert (watermark["settled_until"], watermark["verdict"]) == (None, "unknown")
    assert watermark["because"] == ["green: not observed: partition 1"]


def test_a_colour_that_was_woken_does_not_take_it_back_to_before_it_slept() -> None:
    """Its time is unknown until it has come as far: what it has accepted since it was woken may be open."""
    asleep_us, woken_us = NOW_US - 600 * S, NOW_US - 60 * S
    merged_before = merge_watermarks({"blue": [BLUE]}, NOW_US)[0]
    woken_green: Watermark = {
        **stated(part(), published=Times(asleep_us, asleep_us, False, asleep_us, asleep_us)),
        "chain": chain(asleep_us),
    }
    blue: Watermark = {**BLUE, "chain": chain(NOW_US - S)}
    assert woken_green["settled_until"] == iso(asleep_us), "what it stated before"
    (watermark,) = merge_watermarks(
        {"blue": [blue], "green": [woken_green]}, NOW_US, {"blue": 0, "green": woken_us}
    )
    assert merged_before["settled_until"] == iso(NOW_US - S)
    assert (watermark["settled_until"], watermark["first_pass_until"]) == (None, None)
    assert (watermark["event_until"], watermark["event_as_of"]) == (None, None)
    assert watermark["chain"]["settled_until"] is None  # type: ignore[index] # both have one
    assert watermark["verdict"] == "unknown"
    assert f"green: it was woken at {iso(woken_us)} and has not come as far yet" in watermark["because"]
    (watermark,) = merge_watermarks({"blue": [blue], "green": [GREEN]}, NOW_US, {"green": woken_us})
    assert (watermark["settled_until"], watermark["verdict"]) == (iso(NOW_US - 4 * S), "current")


def chain(settled_us: int) -> ChainJson:
    return {"settled_until": iso(settled_us), "via": [], "held_by": None, "deleted_at": None, "because": []}
