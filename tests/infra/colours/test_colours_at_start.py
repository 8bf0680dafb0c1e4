"""The record that the runner of the colours writes at a start."""

from hifi.delivery.colours import Colour, Colours, ColourSetup, ColourState, FrontAddress
from hifi_infra.colours.colours_at_start import colours_at_start

FRONTS = (FrontAddress("http://front", "socket"),)


def colour(kafka: str = "") -> Colour:
    return Colour(0, ColourState.IDLE, ("http://new",), "http://observe", kafka)


def test_at_the_first_start_the_first_colour_has_every_request() -> None:
    record = colours_at_start(None, {"blue": colour(), "green": colour()}, FRONTS, 7, "me")
    assert record.shares == {"blue": 10_000, "green": 0}
    assert [colour.state for colour in record.colours.values()] == [ColourState.ACTIVE, ColourState.IDLE]
    assert (record.fronts, record.at_ms, record.by) == (FRONTS, 7, "me")


def test_later_everything_stays_but_the_addresses_which_are_new() -> None:
    setup = ColourSetup(partitions=8)
    parked = ({"colour": "blue", "open": {"parked": 3}},)
    colours_before = Colours(
        {
            "blue": Colour(0, ColourState.ASLEEP, ("http://old",), "", "old:9092", setup, left_open=parked),
            "green": Colour(10_000, ColourState.ACTIVE, ("http://old",), "", "old:9092", woken_ms=5),
        },
        (),
        1,
        "before",
    )
    written_colours = colours_at_start(
        colours_before, {"blue": colour(), "green": colour("new:9092")}, FRONTS, 7, "me"
    ).colours
    assert (written_colours["blue"].state, written_colours["blue"].setup, written_colours["blue"].kafka) == (
        ColourState.ASLEEP,
        setup,
        "old:9092",
    )
    assert written_colours["blue"].left_open == parked, "what it parked still holds the watermark of both"
    green = written_colours["green"]
    assert (green.share, green.kafka, green.ingest, green.woken_ms) == (
        10_000,
        "new:9092",
        ("http://new",),
        5,
    )
