"""Results that cannot be written as they are."""

from hifi.pipe.sources.step import StepSource
from hifi.record.headers import REFUSED
from hifi.record.refusal import parse_refusal
from hifi_state.fold.results import ResultEvents
from hifi_state.fold.window_row import FoldedEvent, WindowRow

MIB = 1024 * 1024


def test_a_result_that_no_topic_takes_is_refused_and_the_next_one_is_not() -> None:
    source = {"kind": "step", "from": "flights", "key": {"carrier": "string"}, "first": "10s"}
    results = ResultEvents("delays", StepSource.model_validate(source), [])
    rows = [
        WindowRow(1_000, 1_001, '["A"]', 1, [], event=FoldedEvent(0, raw, f"e{raw}", "[]", b"x" * size))
        for raw, size in enumerate((3 * MIB + 1, 3 * MIB))
    ]
    too_large_event, fitting_event = results.of(rows)
    assert too_large_event.data is None
    refusal = parse_refusal(dict(too_large_event.headers)[REFUSED])
    assert refusal.reason == "too-large"
    assert refusal.detail.startswith(
        "a result of the step delays has 3,145,729 bytes; the limit is 3,145,728"
    )
    assert fitting_event.data == b"x" * (3 * MIB)
    assert fitting_event.position == too_large_event.position + 1
