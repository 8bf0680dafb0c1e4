"""The recorded progress of a table tells which rows may have been written, and at which positions."""

import orjson

from hifi_postgres.source.positions import ZERO
from hifi_postgres.source.progress import SqlProgress


def test_the_positions_of_a_batch_are_the_same_when_its_progress_is_read_again() -> None:
    first_progress = (
        SqlProgress.new().begun([("5", "a"), ("5", "b"), ("9", "a")], ["k", None, "k"]).accepted(17)
    )
    read_back = SqlProgress.read(orjson.loads(orjson.dumps(first_progress.entry())))
    assert read_back == first_progress
    assert read_back.positions() == [ZERO + 5, ZERO + 6, ZERO + 9]
    completed = read_back.completed()
    assert SqlProgress.read(orjson.loads(orjson.dumps(completed.entry()))) == completed
    assert (completed.after, completed.last, completed.done, completed.batch) == (
        ("9", "a"),
        ZERO + 9,
        3,
        None,
    )
    assert completed.begun([("9", "b")], []).positions() == [ZERO + 10], "above the row of equal value"


def test_each_reading_has_a_name_of_its_own() -> None:
    assert SqlProgress.new().read_id != SqlProgress.new().read_id
