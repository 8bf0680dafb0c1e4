"""Verdicts: their records, and how the worst of several is found."""

import pytest

from hifi.control.verdict import VALID_S, Condition, Verdict, Verdicts, decode

NOW = 1_000_000_000


def verdict(scope, condition, at_us=NOW):
    return Verdict(scope, condition, at_us - 60_000_000, at_us, ("2 lost",), {"lost": 2.0})


def test_a_verdict_survives_its_record():
    unstable = verdict("pipe/flights", Condition.UNSTABLE)
    assert decode(unstable.encode()) == unstable


def test_other_records_are_refused():
    with pytest.raises(ValueError, match="verdict"):
        decode(b'{"scope": "stream"}')


def test_the_worst_condition_counts_and_unknown_is_worse_than_unstable():
    verdicts = Verdicts()
    verdicts.put(verdict("stream", Condition.STABLE))
    verdicts.put(verdict("service/egest", Condition.UNSTABLE))
    assert verdicts.condition(("stream",), NOW) is Condition.STABLE
    assert verdicts.condition(("stream", "service/egest"), NOW) is Condition.UNSTABLE
    assert verdicts.condition(("stream", "service/egest", "pipe/new"), NOW) is Condition.UNKNOWN


def test_an_old_verdict_is_unknown():
    verdicts = Verdicts()
    verdicts.put(verdict("stream", Condition.STABLE))
    assert verdicts.condition(("stream",), NOW + VALID_S * 1_000_000) is Condition.STABLE
    assert verdicts.condition(("stream",), NOW + VALID_S * 1_000_000 + 1) is Condition.UNKNOWN
