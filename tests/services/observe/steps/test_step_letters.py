"""Each event that a step judged not to count has a dead letter; one that is missing is found and named."""

from collections.abc import Sequence

import orjson
import pytest
from tests.services.observe.steps.test_partition_account import (
    EPOCH,
    events,
    fresh,
    headers,
    step_now,
    tally,
)

from hifi.record.headers import REASON, SERVICE, SOURCE, STEP, Headers
from hifi.record.identity import seq_text
from hifi.record.step_account import FOLDED, NO_EVENTS, StepAccount, StepStatement
from hifi_observe.steps.partition_account import PartitionAccount, StepFindingJson
from hifi_observe.steps.step_letters import StepLetters

DELAYS = "delays"


def letter(offset: int, reason: str = "late", step: str = DELAYS, service: str = "state") -> Headers:
    """Of the event at an offset, as state writes it."""
    added = {
        SOURCE: f"enriched:{offset}",
        REASON: reason,
        SERVICE: service,
        STEP: step,
    }
    return [*headers(offset), *((name, text.encode()) for name, text in added.items())]


def stated(number: int, end: int, **verdicts: Sequence[int]) -> StepStatement:
    """Of a step that has read all offsets before the end, each an event with this sequence."""
    tallies = {verdict.replace("_", "-"): tally(sequences) for verdict, sequences in verdicts.items()}
    account = StepAccount({}, {0: tallies}, held=tallies.get(FOLDED, NO_EVENTS))
    return StepStatement.of_record(
        {"pipe": "flights", "number": number, "offsets": {"0": end}, "account": account.encode()}
    )


def compare(
    account: PartitionAccount, statement: StepStatement, letters: StepLetters
) -> list[StepFindingJson]:
    offsets = account.unread(statement) or range(0)
    enriched_events = events({offset: headers(offset) for offset in offsets})
    return account.compare(statement, enriched_events, 0, complete=True, letters=letters.take(offsets))


def written(*records: Headers) -> StepLetters:
    letters = StepLetters(DELAYS)
    for record in records:
        letters.add(record)
    return letters


def test_a_letter_that_is_written_twice_or_early_is_one_letter() -> None:
    account, letters = fresh(), written(letter(1), letter(3, "budget"), letter(1), letter(5, "future"))
    first = stated(1, 4, folded=[0, 2], late=[1], budget=[3])
    assert account.unread_letters(first) == tally([1, 3])
    assert not compare(account, first, letters)
    second = stated(2, 8, folded=[0, 2, 4, 7], late=[1], budget=[3], future=[5], key_limit=[6])
    account = PartitionAccount.load(0, orjson.loads(orjson.dumps(account.dump())))
    assert account.unread_letters(second) == tally([5, 6])
    for record in (letter(3, "budget"), letter(6, "key-limit")):
        letters.add(record)
    assert not compare(account, second, letters)
    assert step_now(account)["lost"] == 0


@pytest.mark.parametrize("missing", [[2], [2, 5]])
def test_one_or_two_letters_that_are_missing_are_named(missing: list[int]) -> None:
    account = fresh()
    letters = written(*(letter(offset) for offset in (1, 2, 5) if offset not in missing))
    statement = stated(1, 6, folded=[0, 3, 4], late=[1, 2, 5])
    (finding,) = compare(account, statement, letters)
    assert (finding["kind"], finding["events"]) == ("letters", len(missing))
    assert finding["text"].endswith(" without dead letter")
    assert [suspect["offset"] for suspect in finding["suspects"]] == missing
    assert finding["suspects"][0]["event"] == seq_text(EPOCH, 2).decode()
    step = step_now(account)
    assert (step["proven"], step["lost"]) == (6, len(missing)), "the events themselves are accounted for"
    assert not compare(account, stated(2, 7, folded=[0, 3, 4, 6], late=[1, 2, 5]), letters), "found once"


@pytest.mark.parametrize(
    "other",
    [
        letter(1, step="delays-by-day"),
        letter(1, service="enrich"),
        [(name, text) for name, text in letter(1) if name != STEP],
        letter(1)[1:],
        [(name, b"enriched" if name == SOURCE else text) for name, text in letter(1)],
    ],
    ids=["step", "service", "no step", "no event", "no offset"],
)
def test_a_letter_of_another_step_or_service_is_none_of_the_step(other: Headers) -> None:
    (finding,) = compare(fresh(), stated(1, 2, folded=[0], late=[1]), written(other))
    assert [suspect["offset"] for suspect in finding["suspects"]] == [1]


def test_more_letters_than_are_stated_are_no_loss_and_others_are() -> None:
    assert not compare(fresh(), stated(1, 4, folded=[0, 1, 3], late=[2]), written(letter(1), letter(2)))
    (finding,) = compare(fresh(), stated(1, 4, folded=[0, 1, 3], late=[2]), written(letter(1)))
    assert (finding["events"], finding["suspects"]) == (0, [])


def test_letters_that_are_not_known_are_not_missed() -> None:
    account, statement = fresh(), stated(1, 1, late=[0])
    assert not account.compare(statement, events({0: headers(0)}), 0, complete=True, letters=None)
    assert account.unread_letters(statement) == NO_EVENTS
