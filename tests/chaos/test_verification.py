"""The chaos suite reports every broken promise, and nothing else."""

from typing import Any

from tests.chaos.table import table
from tests.chaos.verification import ChaosResult, FaultWindow, verify


def sent(*ids: str, status: int = 202) -> list[dict[str, Any]]:
    return [{"id": event_id, "key": event_id[0], "n": 0, "at_s": 0.0, "status": status} for event_id in ids]


def arrived(*ids: str, clean: bool = True, at_s: float = 100.0) -> list[dict[str, Any]]:
    line = {"to": "steady", "n": 0, "at_s": at_s, "mode": "ok", "clean": clean}
    return [line | {"id": event_id, "key": event_id[0]} for event_id in ids]


def result_of(log: list[dict[str, Any]], arrivals: list[dict[str, Any]], **overrides: Any) -> ChaosResult:
    topic_facts = {
        "dead": [],
        "first_pass": [],
        "raw_order": {},
        "windows": [],
        "receipts": {},
        "ambiguous": {},
    } | overrides
    return verify(log, arrivals, destinations=["steady"], **topic_facts)


def test_each_event_delivered_once_is_no_failure() -> None:
    assert result_of(sent("a1", "a2"), arrived("a1", "a2")).failures == []


def test_an_acknowledged_event_without_arrival_or_dead_letter_is_lost() -> None:
    verdict = result_of(sent("a1", "a2", "a3"), arrived("a1") + arrived("a3", clean=False))
    assert verdict.lost == ["steady:a2", "steady:a3"]
    assert "2 acknowledged" in verdict.failures[0]


def test_a_dead_letter_is_an_outcome_for_its_destination_or_for_all() -> None:
    assert result_of(sent("a1"), [], dead=[("a1", "steady")]).failures == []
    assert result_of(sent("a1"), [], dead=[("a1", "")]).failures == []
    assert result_of(sent("a1"), [], dead=[("a1", "other")]).lost == ["steady:a1"]


def test_an_event_that_was_not_acknowledged_may_be_missing() -> None:
    assert result_of(sent("a1", status=503) + sent("a2", status=0), []).failures == []


def test_twice_is_a_failure_unless_egest_died_while_it_sent() -> None:
    two_arrivals = arrived("a1", at_s=100) + arrived("a1", at_s=120)
    assert result_of(sent("a1"), two_arrivals).failures == ["1 deliveries arrived twice without a reason"]
    close_window = FaultWindow("kill", "egest-1", 101, 102)
    assert result_of(sent("a1"), two_arrivals, windows=[close_window]).failures == []
    assert (
        result_of(sent("a1"), two_arrivals, windows=[FaultWindow("kill", "normalize-1", 101, 102)]).failures
        != []
    )
    assert (
        result_of(sent("a1"), two_arrivals, windows=[FaultWindow("terminate", "egest-1", 101, 102)]).failures
        != []
    )
    assert (
        result_of(sent("a1"), two_arrivals, windows=[FaultWindow("kill", "egest-1", 300, 301)]).failures != []
    )
    assert (
        result_of(sent("a1"), two_arrivals, windows=[FaultWindow("kill", "egest-1", 108, 109)]).failures != []
    )
    assert (
        result_of(
            sent("a1"), two_arrivals, windows=[close_window], receipts={("a1", "steady"): 121.0}
        ).failures
        == []
    )


def test_twice_is_a_failure_when_the_receipt_was_there_before_egest_died() -> None:
    two_arrivals = arrived("a1", at_s=100) + arrived("a1", at_s=110)
    close_window = FaultWindow("kill", "egest-1", 101, 102)
    verdict = result_of(sent("a1"), two_arrivals, windows=[close_window], receipts={("a1", "steady"): 100.5})
    assert (verdict.twice, verdict.twice_explained, verdict.twice_ids) == (1, 0, ["steady:a1"])


def test_twice_is_explained_by_as_many_ambiguous_answers() -> None:
    two_arrivals = arrived("a1", at_s=100) + arrived("a1", at_s=110)
    thrice = [*two_arrivals, *arrived("a1", at_s=120)]
    answers = {("a1", "steady"): 1}
    assert result_of(sent("a1"), two_arrivals, ambiguous=answers).failures == []
    assert result_of(sent("a1"), thrice, ambiguous=answers).failures != []
    truncated_arrivals = [line | {"mode": "truncate"} for line in arrived("a1", clean=False)]
    assert result_of(sent("a1"), truncated_arrivals + two_arrivals, ambiguous=answers).failures != [], (
        "that one explains the cut answer"
    )


def test_a_reset_behind_the_status_line_is_an_arrival_and_may_come_again() -> None:
    ambiguous = [line | {"ambiguous": True} for line in arrived("a1")]
    assert result_of(sent("a1"), ambiguous).failures == []
    assert result_of(sent("a1"), ambiguous + arrived("a1", at_s=130)).failures == []


def test_an_ambiguous_answer_may_come_again() -> None:
    assert result_of(sent("a1"), arrived("a1", clean=False) + arrived("a1")).failures == []


def test_first_passes_keep_the_order_of_their_key() -> None:
    order = {"a1": 1, "a2": 2, "b1": 0}
    first_arrivals = [(event_id, "steady") for event_id in order]
    log = sent("a1", "a2", "b1")
    assert (
        result_of(log, arrived("a1", "b1", "a2"), first_pass=first_arrivals, raw_order=order).failures == []
    )
    assert (
        result_of(log, arrived("a2", "a1", "b1"), first_pass=first_arrivals, raw_order=order).out_of_order
        == 1
    )
    first_passes = [("a2", "steady"), ("b1", "steady")]
    assert (
        result_of(log, arrived("a2", "a1", "b1"), first_pass=first_passes, raw_order=order).out_of_order == 0
    )


def test_the_table_sums_the_runs_and_counts_late_recoveries() -> None:
    fault = {"fault": "kill", "target": "egest-1", "ready_again_s": 4.0, "flowing_again_s": 0.5}
    result = {
        "acknowledged": 10,
        "delivered": {"steady": 9, "shaky": 8},
        "dead": {"steady": 1, "shaky": 2},
        "lost": 0,
        "twice": 3,
        "twice_explained": 3,
        "out_of_order": 0,
        "faults": [fault, fault | {"target": "egest-2", "ready_again_s": None}],
    }
    lines = table([result, result]).splitlines()
    assert lines[2] == "| 2 | 20 | 0 | 0 | 34 | 6 | 0 | 6 | 6 | 0 |"
    assert lines[-1] == "| kill egest | 4 | 4.0 / 4.0 | 0.5 | 2 |"
