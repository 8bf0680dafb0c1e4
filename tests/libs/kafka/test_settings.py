"""Settings that would make events count nowhere are refused."""

import pytest
from pydantic import ValidationError

from hifi.kafka.settings import EventTimeSettings


def test_no_event_counts_in_a_minute_that_observe_follows_no_more() -> None:
    assert EventTimeSettings(stream="s", time_tolerance_s=3600).time_tolerance_s == 3600
    with pytest.raises(ValidationError, match="time_tolerance_s"):
        EventTimeSettings(stream="s", time_tolerance_s=3601)
