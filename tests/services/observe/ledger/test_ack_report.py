"""An ack report with figures that cannot be is none, and stops nothing."""

from typing import Any

import orjson
import pytest

from hifi.runtime.errors import NotAnEvent
from hifi_observe.ledger.ack_report import parse

SOURCE = {
    "backfill": True, "done": 1, "remaining": 2, "read_per_s": 1.0, "arriving_per_s": 0.5, "limit_per_s": 3.0,
    "late": "",
}  # fmt: skip


def value(spans: Any, **extra_fields: Any) -> bytes:
    return orjson.dumps({"epoch": "0" * 16, "pipes": {"p": {"7": spans}}} | extra_fields)


def test_ranges_are_read_as_they_are() -> None:
    report = parse(value([[0, 5], [9, 9]], answers={"200": 3}, sources={"p": SOURCE}))
    assert report.ranges == (("p", 7, 0, 5), ("p", 7, 9, 9))
    assert (report.answers, report.sources["p"]["remaining"]) == ({"200": 3}, 2)


@pytest.mark.parametrize(
    "report",
    [
        value([[-1, 5]]),
        value([[0, 10**15]]),
        value([[0, 60_000_000], [60_000_001, 120_000_001]]),
        value([[18_446_744_073_709_551_615, 18_446_744_073_709_551_615]]),
        value([[0, "9" * 5000]]),
        value([[0, 1]], answers={"200": 10**18}),
        value([[0, 1]], paused={"p": 10**18}),
        value([[0, 1]], deleted=[["p", "0", -1, 10**18]]),
        value([[0, 1]], sources={"p": SOURCE | {"read_per_s": "inf"}}),
        value([[0, 1]], sources={"p": SOURCE | {"remaining": 10**18}}),
        b'{"epoch":"a","answers":{"200":1e400}}',
        b"[]",
    ],
)
def test_what_cannot_be_is_no_ack_report(report: bytes) -> None:
    with pytest.raises(NotAnEvent):
        parse(report)
