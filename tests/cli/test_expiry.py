"""Durations after which something expires, and times that no calendar has."""

import pytest

from hifi.runtime.errors import Misconfigured
from hifi_cli.display.units import local_time, utc_time
from hifi_cli.expiry import LONGEST_S, duration_s


def test_a_duration_is_read_as_seconds() -> None:
    assert duration_s("--expires", "90d") == 90 * 86_400
    assert duration_s("--expires", f"{LONGEST_S:.0f}s") == LONGEST_S


@pytest.mark.parametrize("text", ["9999999d", "0s", "soon", "-1d", "9" * 400 + "d"])
def test_a_duration_that_no_time_can_have_is_refused(text: str) -> None:
    with pytest.raises(Misconfigured, match="--expires"):
        duration_s("--expires", text)


@pytest.mark.parametrize("at_us", [1_700_000_000_000_000_000, -(10**18), 10**40])
def test_a_time_in_another_unit_is_shown_as_a_number(at_us: int) -> None:
    assert utc_time(at_us) == f"{at_us} µs"
    assert local_time(at_us) == f"{float(at_us):.0f} s after 1970"


def test_times_are_shown() -> None:
    assert utc_time(None) == "never"
    assert utc_time(1_700_000_000_999_999) == "2023-11-14 22:13"
