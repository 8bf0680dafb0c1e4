"""What a step states is compared with the events of a partition; what is missing is counted, one or two are named."""

from collections.abc import Mapping, Sequence
from typing import Any

import orjson
import pytest

from hifi.record.headers import Headers
from hifi.record.identity import identity_prefix, identity_stem, seq_text, write_identity
from hifi.record.step_account import (
    FOLDED,
    NO_EVENTS,
    StepAccount,
    StepStatement,
    Tally,
    fingerprint,
    total,
)
from hifi_observe.steps.partition_account import EnrichedEvents, PartitionAccount, StepNow, of_step
from hifi_observe.steps.step_accounting import read_statement
from hifi_observe.steps.step_letters import StepLetters

EPOCH = 7
MINUTE = 28_333_333


def headers(sequence: int, pipe: str = "flights", kind: bytes = b"") -> Headers:
    stem = identity_stem(identity_prefix(pipe, 1, 1, MINUTE * 60_000_000), MINUTE, EPOCH)
    name, value = write_identity(stem, sequence)
    return [(name, value + kind), ("hifi_hop", b"1;2;shop")]


def tally(sequences: Sequence[int]) -> Tally:
    return total(Tally(1, fingerprint(seq_text(EPOCH, sequence))) for sequence in sequences)


def statement(
    number: int, end: int, folded: Sequence[int], held: Sequence[int], partition: int = 0
) -> StepStatement:
    """Of a step that has folded events of one partition, and has some of them in its windows."""
    account = StepAccount({}, {partition: {FOLDED: tally(folded)}}, held=tally(held))
    body = {
        "pipe": "flights",
        "number": number,
        "offsets": {str(partition): end},
        "account": account.encode(),
    }
    return StepStatement.of_record(orjson.loads(orjson.dumps(body)))


def events(offsets: Mapping[int, Headers]) -> EnrichedEvents:
    enriched_events = EnrichedEvents(["flights"])
    for offset, record_headers in offsets.items():
        enriched_events.add(offset, record_headers)
    return enriched_events


def fresh(partition: int = 0) -> PartitionAccount:
    return PartitionAccount(partition, StepStatement.begin(["flights"], {}))


def step_now(*accounts: PartitionAccount) -> StepNow:
    step = of_step("delays", [{"steps": {"delays": account.dump()}} for account in accounts])
    assert step is not None
    return step


def test_events_of_equal_count_and_xor_are_proven_and_others_do_not_count() -> None:
    account = fresh()
    stated = statement(1, 5, [1, 2], [1, 2])
    assert account.unread(stated) == range(5)
    read_events = events(
        {
            0: headers(1),
            1: headers(2),
            2: headers(3, "other"),
            3: headers(9, kind=b";;heartbeat"),
            4: [("foreign", b"1")],
        }
    )
    assert not account.compare(stated, read_events, 0, complete=True)
    assert account.unread(stated) is None
    assert account.unread(statement(2, 8, [1, 2, 3], [3])) == range(5, 8)
    assert (step_now(account)["proven"], step_now(account)["verdicts"]) == (2, {FOLDED: 2})


@pytest.mark.parametrize("missing", [[2], [2, 5]])
def test_one_or_two_events_that_are_not_accounted_for_are_named(missing: list[int]) -> None:
    account, everything = fresh(), range(8)
    kept = [sequence for sequence in everything if sequence not in missing]
    (finding,) = account.compare(
        statement(1, 8, kept, kept), events({n: headers(n) for n in everything}), 5, complete=True
    )
    assert (finding["kind"], finding["events"], finding["at_us"]) == ("read", len(missing), 5)
    assert [suspect["offset"] for suspect in finding["suspects"]] == missing
    assert finding["suspects"][0]["event"] == seq_text(EPOCH, 2).decode()
    assert finding["suspects"][0]["minute"] == MINUTE
    step = step_now(account)
    assert (step["proven"], step["unproven"], step["lost"]) == (0, 8, len(missing))


def test_an_event_that_is_exchanged_for_another_is_found_though_their_number_is_equal() -> None:
    (finding,) = fresh().compare(
        statement(1, 2, [1, 3], [1, 3]), events({0: headers(1), 1: headers(2)}), 0, complete=True
    )
    assert (finding["events"], finding["suspects"]) == (0, [])


def test_an_event_in_no_window_is_named_on_its_own_partition_and_told_once() -> None:
    first, second = fresh(0), fresh(1)
    lossy = statement(1, 2, [1, 2], [2], partition=1)
    findings = [
        *first.compare(lossy, EnrichedEvents(["flights"]), 0, complete=True),
        *second.compare(lossy, events({0: headers(1), 1: headers(2)}), 0, complete=True),
    ]
    assert [(finding["kind"], finding["partition"]) for finding in findings] == [
        ("windows", 0),
        ("windows", 1),
    ]
    assert step_now(first, second)["lost"] == 1
    (joined,) = step_now(first, second)["findings"]
    assert joined["events"] == 1
    assert [suspect["offset"] for suspect in joined["suspects"]] == [0]
    later = statement(2, 3, [1, 2, 3], [2, 3], partition=1)
    assert not first.compare(later, EnrichedEvents(["flights"]), 0, complete=True)
    assert not second.compare(later, events({2: headers(3)}), 0, complete=True)


def test_what_kafka_deleted_before_it_was_compared_is_unproven_and_no_loss() -> None:
    account = fresh()
    assert not account.compare(
        statement(1, 3, [1, 2, 3], [3, 2, 1]), events({2: headers(3)}), 0, complete=False
    )
    assert not account.compare(
        statement(2, 4, [1, 2, 3, 4], [1, 2, 3, 4]), events({3: headers(4)}), 0, complete=True
    )
    assert (step_now(account)["proven"], step_now(account)["unproven"]) == (1, 3)


def test_another_instance_goes_on_where_the_last_one_published() -> None:
    account = fresh()
    account.compare(statement(1, 2, [1], [1]), events({0: headers(1), 1: headers(2)}), 0, complete=True)
    resumed = PartitionAccount.load(0, orjson.loads(orjson.dumps(account.dump())))
    assert resumed.dump() == account.dump()
    next_statement = statement(2, 3, [1, 3], [1, 3])
    assert resumed.is_of(next_statement)
    assert resumed.unread(next_statement) == range(2, 3)
    assert not resumed.compare(next_statement, events({2: headers(3)}), 0, complete=True)
    assert len(step_now(resumed)["findings"]) == 1


def test_a_step_that_is_begun_anew_has_another_account() -> None:
    account = fresh()
    account.compare(statement(3, 2, [1, 2], []), events({0: headers(1), 1: headers(2)}), 0, complete=True)
    assert not account.is_of(statement(2, 2, [], []))
    assert not account.is_of(StepStatement(("trains",), 4, {0: 2}, StepAccount()))
    assert not account.is_of(StepStatement(("flights",), 4, {0: 2}, StepAccount({0: 2})))
    joined = StepStatement(("flights", "trains"), 4, {0: 2}, StepAccount())
    assert not account.is_of(joined)
    resumed = PartitionAccount.load(0, orjson.loads(orjson.dumps(PartitionAccount(0, joined).dump())))
    assert resumed.is_of(joined)
    assert (step_now(resumed)["reads"], step_now(resumed)["joined"]) == ("flights", ["trains"])


def test_windows_that_another_declaration_began_without_their_events_are_no_loss() -> None:
    account = StepAccount({}, {0: {FOLDED: tally([1, 2, 3])}}, resulted=tally([1]), held=tally([2, 3]))
    assert account.missing == NO_EVENTS
    begun = account.with_windows(tally([3]))
    assert begun.missing == NO_EVENTS
    after = begun.after({0: {FOLDED: tally([4])}}, tally([3]), tally([]))
    assert after.missing == tally([4])
    assert StepAccount.decode(orjson.loads(orjson.dumps(after.encode()))) == after


def test_nothing_is_known_of_a_pipe_that_is_no_step() -> None:
    assert of_step("flights", [{}, {"steps": {"delays": fresh().dump()}}]) is None


FOLD = {
    "pipe": "p",
    "number": 1,
    "offsets": {"0": 5},
    "account": StepAccount({0: 0}, {0: {FOLDED: Tally(1, 2)}}).encode(),
}


@pytest.mark.parametrize(
    "changes",
    [
        {"pipe": 5},
        {"number": None},
        {"offsets": {"x": 1}},
        {"account": {}},
        {"account": FOLD["account"] | {"held": ["a", 1]}},  # type: ignore[operator]
        {"account": FOLD["account"] | {"read": {"0": {FOLDED: [1]}}}},  # type: ignore[operator]
    ],
)
def test_a_record_that_states_nothing_of_a_step_is_refused(changes: dict[str, Any]) -> None:
    assert read_statement(orjson.dumps(FOLD)).account.read_of(0) == Tally(1, 2)
    with pytest.raises(ValueError, match=r".+"):
        read_statement(orjson.dumps(FOLD | changes))


def test_a_record_whose_headers_cannot_be_read_is_no_event_of_a_step() -> None:
    events, letters = EnrichedEvents(["p"]), StepLetters("p")
    for headers in ([("hifi", None)], [("hifi", b"\xff")], [], [("hifi_service", None)]):
        events.add(0, headers)  # type: ignore[arg-type]
        letters.add(headers)  # type: ignore[arg-type]
    assert events.tally == NO_EVENTS
    assert letters.take(range(10)) == NO_EVENTS
