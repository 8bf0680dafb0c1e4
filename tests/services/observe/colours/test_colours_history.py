"""What observe tells the observe of the other colour about lost and late events."""

from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from hifi_observe.colours.colours_history import ColoursHistory
from hifi_observe.minutes.day_record import day_of
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.minutes.named_ids import EventId, NamedIds
from hifi_observe.web.colour_answers import ColourAnswers

MINUTE = 29_400_000
DAY = str(day_of(MINUTE))
NAMED = NamedIds((EventId("enrich", "", 0, "ab", 1),), (), 1, 0, {"ab:1": "ann@x.example"}, True).dump()


@pytest.mark.parametrize(("hides_ids", "names"), [(False, NAMED["names"]), (True, {})])
def test_names_of_events_whose_ids_the_pipe_masks_now_are_told_nobody(
    hides_ids: bool, names: dict[str, str]
) -> None:
    store = MinuteStore()
    store.ids["flights"][MINUTE] = orjson.dumps(NAMED)
    store.colours_ids["flights"][MINUTE] = orjson.dumps({"of-other-colour": NAMED})
    pipes: Any = SimpleNamespace(hides_id=lambda name: hides_ids and name == "flights")
    colours: Any = SimpleNamespace(exist=False)
    answers = ColourAnswers(colours, pipes, ColoursHistory(store))
    history = answers.history("flights", DAY, DAY)
    assert history["ids"] == {
        str(MINUTE): dict.fromkeys(("of-other-colour", "own"), NAMED | {"names": names})
    }
    (ids_json,) = {orjson.dumps(ids_json) for ids_json in history["ids"][str(MINUTE)].values()}
    assert NamedIds.load(orjson.loads(ids_json)).lost == NamedIds.load(NAMED).lost
