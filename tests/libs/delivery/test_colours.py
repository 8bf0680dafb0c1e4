"""The record of the colours: what it refuses, and that it survives a trip through Kafka."""

import orjson
import pytest

from hifi.delivery.colours import Colour, Colours, ColourSetup, ColourState, FrontAddress, decode, other
from hifi.runtime.errors import Misconfigured


def colours(blue: int = 10_000, green_state: ColourState = ColourState.IDLE) -> Colours:
    return Colours(
        {
            "blue": Colour(
                blue, ColourState.ACTIVE, ("http://127.0.0.1:1",), "http://127.0.0.1:2", "127.0.0.1:3"
            ),
            "green": Colour(10_000 - blue, green_state, ("http://127.0.0.1:4",), "http://127.0.0.1:5"),
        },
        (
            FrontAddress("http://127.0.0.1:6", "/front.sock"),
            FrontAddress("http://127.0.0.1:7", "/second.sock"),
        ),
        7,
        "somebody",
    )


def test_a_record_is_read_as_it_was_written() -> None:
    assert decode(colours().record().value) == colours()


def test_a_setup_is_kept_in_the_record_and_given_only_to_a_colour_that_is_asleep() -> None:
    setup = ColourSetup(8, "4.4.0", "/releases/1", {"HIFI_A": "1"})
    with pytest.raises(Misconfigured, match="hifi colour sleep green"):
        colours().with_setup("green", setup, 8, "me")
    changed_colours = colours(green_state=ColourState.ASLEEP).with_setup("green", setup, 8, "me")
    assert (changed_colours.colours["green"].setup, changed_colours.colours["green"].state) == (
        setup,
        ColourState.IDLE,
    )
    assert decode(changed_colours.record().value) == changed_colours
    assert setup.text() == "8 partitions, Kafka 4.4.0, release /releases/1, HIFI_A=1"
    assert ColourSetup().text() == ""


def test_a_colour_is_light_while_it_has_a_share_and_dark_when_it_loses_it() -> None:
    split = colours().with_shares({"blue": 5000, "green": 5000}, 8, "me")
    assert {colour.state for colour in split.colours.values()} == {ColourState.ACTIVE}
    shifted_colours = split.with_shares({"blue": 0, "green": 10_000}, 9, "me")
    assert shifted_colours.colours["blue"].state is ColourState.IDLE
    assert (shifted_colours.at_ms, shifted_colours.by) == (9, "me")


def test_the_record_has_when_a_colour_was_woken_last() -> None:
    asleep = colours(green_state=ColourState.ASLEEP)
    for woken in (
        asleep.with_state("green", ColourState.IDLE, 8, "me"),
        asleep.with_setup("green", ColourSetup(8), 8, "me"),
    ):
        shifted_colours = woken.with_shares({"blue": 0, "green": 10_000}, 9, "me")
        assert (shifted_colours.colours["green"].woken_ms, shifted_colours.colours["blue"].woken_ms) == (8, 0)
        assert decode(shifted_colours.record().value) == shifted_colours
    json_before = colours().json()
    for colour in json_before["colours"].values():
        del colour["woken"]
    assert decode(orjson.dumps(json_before)) == colours(), "of a release before"


def test_what_is_open_in_a_colour_is_in_the_record_while_it_sleeps() -> None:
    left_open = [{"pipe": "flights", "destination": "crm", "open": {"parked": 3}}]
    asleep = colours().with_sleep("green", left_open, 8, "me")
    assert asleep.colours["green"].state is ColourState.ASLEEP
    assert decode(asleep.record().value).colours["green"].left_open == tuple(left_open)
    assert asleep.with_state("green", ColourState.IDLE, 9, "me").colours["green"].left_open == ()


def test_a_colour_that_woke_awaits_the_write_keys_of_the_other_one_until_it_has_them() -> None:
    asleep = colours(green_state=ColourState.ASLEEP)
    for woken in (
        asleep.with_state("green", ColourState.IDLE, 8, "me"),
        asleep.with_setup("green", ColourSetup(8), 8, "me"),
    ):
        assert woken.colours["green"].awaits_keys
        assert decode(woken.record().value) == woken
        assert woken.with_state("green", ColourState.DRAINING, 9, "me").colours["green"].awaits_keys
        assert woken.with_keys("green", 7) == woken, "it was woken again since"
        complete = woken.with_keys("green", 8)
        assert (complete.colours["green"].awaits_keys, complete.by, complete.at_ms) == (False, "me", 8)
        shifted_colours = woken.with_shares({"blue": 0, "green": 10_000}, 9, "me")
        with pytest.raises(Misconfigured, match="green has not got the issued write keys of blue yet"):
            shifted_colours.with_sleep("blue", (), 10, "me")
    assert not asleep.colours["green"].awaits_keys
    json_before = colours().json()
    for colour in json_before["colours"].values():
        del colour["awaits_keys"]
    assert decode(orjson.dumps(json_before)) == colours(), "of a release before"


def test_shares_that_do_not_add_up_are_refused() -> None:
    for shares in ({"blue": 5000, "green": 4999}, {"blue": -1, "green": 10_001}):
        with pytest.raises(Misconfigured, match="do not add up"):
            colours().with_shares(shares, 8, "me")


def test_a_colour_that_is_asleep_gets_no_requests() -> None:
    with pytest.raises(Misconfigured, match="hifi colour wake green"):
        colours(green_state=ColourState.ASLEEP).with_shares({"blue": 0, "green": 10_000}, 8, "me")


def test_a_colour_with_requests_neither_drains_nor_sleeps() -> None:
    for state in (ColourState.DRAINING, ColourState.ASLEEP):
        with pytest.raises(Misconfigured, match="hifi colour shift green"):
            colours().with_state("blue", state, 8, "me")


def test_a_draining_colour_stays_draining_when_the_shares_do_not_concern_it() -> None:
    draining = colours().with_state("green", ColourState.DRAINING, 8, "me")
    colours_after = draining.with_shares({"blue": 10_000, "green": 0}, 9, "me")
    assert colours_after.colours["green"].state is ColourState.DRAINING


@pytest.mark.parametrize(
    "change",
    [{"version": 2}, {"fronts": [{}]}, {"colours": {"blue": {}}}],
)
def test_a_record_that_is_not_understood_is_refused(change: dict[str, object]) -> None:
    record = colours().json() | change
    with pytest.raises(ValueError, match="not a record of colours"):
        decode(orjson.dumps(record))


def test_the_other_colour_is_the_other_one() -> None:
    assert (other("blue"), other("green")) == ("green", "blue")


def test_sources_are_read_by_the_colour_with_the_larger_share() -> None:
    assert colours().source_reader == "blue"
    assert colours().with_shares({"blue": 4000, "green": 6000}, 8, "me").source_reader == "green"
    assert colours().with_shares({"blue": 5000, "green": 5000}, 8, "me").source_reader == "blue"
