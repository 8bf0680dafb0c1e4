"""The record that whoever runs the colours writes at a start."""

from hifi.delivery.colours import Colour, Colours, ColourSetup, ColourState, FrontAddress
from hifi_infra.colours.first_record import first_record

FRONTS = (FrontAddress("http://front", "socket"),)


def colour(kafka: str = "") -> Colour:
    return Colour(0, ColourState.DARK, ("http://new",), "http://observe", kafka)


def test_at_the_first_start_the_first_colour_has_every_request() -> None:
    found = first_record(None, {"blue": colour(), "green": colour()}, FRONTS, 7, "me")
    assert found.shares == {"blue": 10_000, "green": 0}
    assert [one.state for one in found.colours.values()] == [ColourState.LIGHT, ColourState.DARK]
    assert (found.fronts, found.at_ms, found.by) == (FRONTS, 7, "me")


def test_later_shares_states_and_setups_stay_and_addresses_are_new() -> None:
    setup = ColourSetup(partitions=8)
    before = Colours(
        {
            "blue": Colour(0, ColourState.ASLEEP, ("http://old",), "", "old:9092", setup),
            "green": Colour(10_000, ColourState.LIGHT, ("http://old",), "", "old:9092"),
        },
        (),
        1,
        "before",
    )
    found = first_record(before, {"blue": colour(), "green": colour("new:9092")}, FRONTS, 7, "me").colours
    assert (found["blue"].state, found["blue"].setup, found["blue"].kafka) == (
        ColourState.ASLEEP,
        setup,
        "old:9092",
    )
    assert (found["green"].share, found["green"].kafka, found["green"].ingest) == (
        10_000,
        "new:9092",
        ("http://new",),
    )
