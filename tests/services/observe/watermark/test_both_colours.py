"""Over two colours the earlier time counts, and none if a colour does not answer."""

from tests.services.observe.watermark.test_statement import NOW_US, S, part, stated

from hifi_observe.watermark.both_colours import merge_watermarks
from hifi_observe.watermark.statement import Watermark, iso

BLUE: Watermark = stated(part(), part())
GREEN: Watermark = stated(part(), part(reached=NOW_US - 4 * S))


def test_the_earlier_time_counts() -> None:
    (watermark,) = merge_watermarks({"blue": [BLUE], "green": [GREEN]}, NOW_US)
    assert watermark["settled_until"] == iso(NOW_US - 4 * S)
    assert watermark["verdict"] == "current"


def test_a_colour_that_is_asleep_is_left_out() -> None:
    assert merge_watermarks({"blue": [BLUE]}, NOW_US) == [BLUE]


def test_a_colour_that_does_not_answer_or_states_nothing_makes_it_unknown() -> None:
    for answer, reason in (("no answer", "green: no answer"), ([], "green: nothing is stated there")):
        (watermark,) = merge_watermarks({"blue": [BLUE], "green": answer}, NOW_US)
        assert (watermark["settled_until"], watermark["verdict"]) == (None, "unknown")
        assert watermark["because"] == [reason]


def test_a_colour_without_a_time_makes_the_time_unknown() -> None:
    blind = stated(part())
    (watermark,) = merge_watermarks({"blue": [BLUE], "green": [blind]}, NOW_US)
    assert (watermark["settled_until"], watermark["verdict"]) == (None, "unknown")
    assert watermark["because"] == ["green: not observed: partition 1"]
