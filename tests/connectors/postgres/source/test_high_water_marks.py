"""Rows are read up to a value only when no transaction can commit a lower one."""

from hifi_postgres.source.high_water_marks import HighWaterMark, HighWaterMarks


def test_a_mark_settles_when_it_is_old_enough_and_earlier_transactions_have_ended() -> None:
    high_water_marks = HighWaterMarks(settle_s=5)
    assert (
        high_water_marks.settled(HighWaterMark("10", next_transaction=8, oldest_transaction=7), 100) is None
    )
    assert high_water_marks.settled(HighWaterMark("12", 9, 7), 106) is None, "transaction 7 still runs"
    assert high_water_marks.held_back_s(106) == 1
    assert high_water_marks.settled(HighWaterMark("12", 9, 8), 107) is None, (
        "8 wrote before the mark was old enough"
    )
    assert high_water_marks.settled(HighWaterMark("12", 10, 9), 108) == "10", "both have ended"
    assert high_water_marks.settled(HighWaterMark("12", 10, 10), 112) == "12"
    assert high_water_marks.held_back_s(112) == 0
    assert high_water_marks.settled(HighWaterMark("13", 10, 10), 113) == "12"


def test_an_empty_table_has_no_mark() -> None:
    high_water_marks = HighWaterMarks(settle_s=0)
    assert high_water_marks.settled(HighWaterMark(None, 3, 3), 0) is None
    assert high_water_marks.settled(HighWaterMark("1", 3, 3), 0) == "1"
