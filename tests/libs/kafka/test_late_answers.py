"""Ends that a broker tells after it stood still do not count."""

from hifi.kafka.late_answers import LateAnswers

S = 1_000_000


def test_answers_of_a_broker_that_stood_still_do_not_count() -> None:
    answers = LateAnswers()
    assert answers.counts(0, 50_000)
    assert not answers.counts(S, 12 * S)
    assert not answers.counts(12 * S, 12 * S + 1)
    assert not answers.counts(21 * S, 21 * S + 1)
    assert answers.counts(22 * S, 22 * S + 1)
