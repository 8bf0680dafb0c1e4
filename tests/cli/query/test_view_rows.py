"""`hifi view` states the time until which all that it read is complete."""

from typing import Any

import pytest

from hifi_cli.mesh_state.json_api import JsonAnswer
from hifi_cli.query import view_rows
from hifi_cli.query.view_rows import read_rows

EARLIER, LATER = "2026-01-01T00:00:00.5Z", "2026-01-01T00:00:01Z"


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ((EARLIER, LATER), EARLIER),
        ((LATER, EARLIER), EARLIER),
        ((EARLIER, "none"), None),  # the view is made anew: rows of the second page may be missing
        (("none", LATER), None),
        (("none",), None),
    ],
)
def test_rows_are_complete_until_the_earliest_time_of_all_pages(
    monkeypatch: pytest.MonkeyPatch, times: tuple[str, ...], expected: str | None
) -> None:
    pages = [
        JsonAnswer(
            200,
            {"rows": [], "next": None if number == len(times) else "[1]"},
            {"hifi-complete-until": time},
        )
        for number, time in enumerate(times, 1)
    ]
    answers = iter([JsonAnswer(200, {"key": ["flight"], "fields": {"flight": "text"}}, {}), *pages])

    class ScriptedApi:
        """Gives the pages."""

        def __init__(self, *_: Any) -> None:
            pass

        def request(self, *_: Any) -> JsonAnswer:
            return next(answers)

    monkeypatch.setattr(view_rows, "JsonApi", ScriptedApi)
    read = read_rows("http://127.0.0.1:9", "key", "flights-now", at_least=None, within_s=1, row_limit=9)
    assert read.complete_until == expected
