"""A day over both colours keeps the best known state of each minute, whatever the order of its reports."""

import itertools
import random

import orjson

from hifi_observe.colours.colours_day import INCOMPLETE, ColoursDay, ColoursMinute, fuller
from hifi_observe.minutes.availability import DAY_MINUTES
from hifi_observe.minutes.day_record import COUNTS, MinuteState

UNKNOWN = ColoursMinute(MinuteState("unknown", (INCOMPLETE,)), ("a", "b"))
DOWN = ColoursMinute(MinuteState("down", ("loss",)), ("a", "b"))
OF_ONE = ColoursMinute(MinuteState("up"), ("a",))


def test_a_judgement_is_not_replaced_by_one_that_knows_less() -> None:
    """A stream that was made anew has no events of the time before."""
    assert fuller(DOWN, OF_ONE) == DOWN
    assert fuller(OF_ONE, DOWN) == DOWN
    assert fuller(DOWN, UNKNOWN) == DOWN
    assert fuller(UNKNOWN, OF_ONE) == OF_ONE
    assert fuller(None, UNKNOWN) == UNKNOWN
    amended_minute = ColoursMinute(MinuteState("up"), ("a", "b"))
    assert fuller(DOWN, amended_minute) == amended_minute


def test_days_of_both_colours_agree_after_they_have_joined() -> None:
    draw = random.Random(7)
    for _ in range(20):
        days = []
        for _ in range(2):
            minutes = draw.sample(range(DAY_MINUTES), 300)
            days.append(ColoursDay().judged((minute, draw.choice([UNKNOWN, OF_ONE])) for minute in minutes))
        blue, green = days
        assert dict(blue.joined(green, "b").minutes) == dict(green.joined(blue, "a").minutes)
        judgements = [*blue.minutes.items(), *green.minutes.items()]
        draw.shuffle(judgements)
        assert dict(ColoursDay().judged(judgements).minutes) == dict(blue.joined(green, "b").minutes)


def test_a_day_is_read_as_it_was_written_and_its_counts_are_those_of_all_logs() -> None:
    states = itertools.islice(itertools.cycle([UNKNOWN, OF_ONE, OF_ONE, DOWN]), DAY_MINUTES)
    day = ColoursDay(
        dict(enumerate(states)), {"a": dict.fromkeys(COUNTS, 3), "b": {"in": 4}, "before": {"lost": 1}}
    )
    loaded_day = ColoursDay.load(orjson.loads(orjson.dumps(day.dump())))
    assert loaded_day == day
    assert day.record().counts == {"in": 7, "delivered": 3, "dead": 3, "lost": 4, "late": 3}
    assert sum(span.length for span in day.record().spans) == DAY_MINUTES


def test_the_counts_of_a_log_are_those_of_its_colour() -> None:
    blue = ColoursDay({}, {"a": {"in": 5}, "b": {"in": 1}, "before": {"in": 9}})
    green = ColoursDay({}, {"a": {"in": 4}, "b": {"in": 2}})
    assert blue.joined(green, "b").counts == {"a": {"in": 5}, "b": {"in": 2}, "before": {"in": 9}}
