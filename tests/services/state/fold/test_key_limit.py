"""The first events of a key in a stretch of time count, however the log is cut."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st
from tests.services.state.fold.test_event_file import EACH, open_file, progress, step_of

from hifi.record.step_account import Tally
from hifi_state.fold.window_row import FoldedEvent, WindowRow

LENGTH_MS = 10_000
MOST = 2

_EVENTS = st.lists(st.tuples(st.integers(0, 29_999), st.sampled_from("AB"), st.integers(0, 1)), max_size=40)


def row(raw: int, time_ms: int, key: str, partition: int) -> WindowRow:
    event = FoldedEvent(partition, raw, f"e{raw}")
    return WindowRow(time_ms, time_ms + 1, f'["{key}"]', 1, [1, 1], Tally(1, raw), event)


def expected(rows: Sequence[WindowRow]) -> set[int]:
    """Offsets in `raw` of the events that count."""
    counts: Counter[tuple[str, int, int]] = Counter()
    counted = set()
    for event_row in rows:
        assert event_row.event is not None
        stretch = event_row.key, event_row.event.partition, event_row.start_ms // LENGTH_MS
        counts[stretch] += 1
        if counts[stretch] <= MOST:
            counted.add(event_row.event.raw)
    return counted


@given(events=_EVENTS, cuts=st.lists(st.integers(0, 40), max_size=4), reverses=st.booleans())
def test_as_many_events_of_a_key_count_as_its_limit_however_the_log_is_cut(
    events: list[tuple[int, str, int]], cuts: list[int], reverses: bool
) -> None:
    rows = [row(raw, *event) for raw, event in enumerate(events)]
    counted: list[WindowRow] = []
    beyond: list[WindowRow] = []
    bounds = sorted({0, len(rows), *(cut for cut in cuts if cut < len(rows))})
    with TemporaryDirectory() as folder:
        file = open_file(Path(folder) / "a.db", step_of({**EACH, "limit": MOST}))
        limit, applied_count = file.limit(), 0
        for number, (start, end) in enumerate(pairwise(bounds)):
            assert limit is not None
            rows_of_range = rows[start:end]
            new_counted, new_beyond = limit.split(rows_of_range[::-1] if reverses else rows_of_range)
            counted += new_counted
            beyond += new_beyond
            if number % 2:  # what is applied is counted from the file
                file.apply(counted[applied_count:], progress(number))
                limit, applied_count = file.limit(), len(counted)
        file.close()
    raws = {window_row.event.raw for window_row in counted if window_row.event}
    assert len(counted) + len(beyond) == len(rows)
    assert raws == expected(rows)
