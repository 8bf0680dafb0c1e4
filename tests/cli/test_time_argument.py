import pytest

from hifi.runtime.errors import Misconfigured
from hifi_cli.time_argument import parse_time_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, None),
        ("90m", (1_000_000 - 5400) * 1000),
        ("250ms", 999_999_750),
        ("1970-01-01T00:00:01Z", 1000),
        ("1970-01-01T01:00:01.5+01:00", 1500),
    ],
)
def test_a_time_argument_is_a_duration_ago_or_a_time(text, expected):
    assert parse_time_ms(text, 1_000_000) == expected


@pytest.mark.parametrize("text", ["", "yesterday", "5", "2013-13-01"])
def test_an_invalid_time_argument_is_refused_with_examples(text):
    with pytest.raises(Misconfigured, match="2h or 7d"):
        parse_time_ms(text, 0)
