"""Records of watermarks that another program wrote are refused, and nothing of them is kept."""

from typing import Any

import orjson
import pytest
from tests.services.observe.watermark.test_statement import NOW_US, part, stated

from hifi_observe.watermark.statement import iso
from hifi_observe.watermark.watermark_store import WatermarkStore, key_of

PART: dict[str, Any] = {**part()}
STATEMENT: dict[str, Any] = {**stated(part(), part())}


@pytest.mark.parametrize("value", [5, {}, PART | {"at": "x"}, PART | {"open": [["p"]]}, PART | {"late": 5}])
def test_a_part_of_another_program_is_refused(value: Any) -> None:
    store = WatermarkStore("this")
    store.read_part(0, orjson.dumps(PART | {"by": "other"}), 0, 0)
    with pytest.raises(ValueError, match=r".+"):
        store.read_part(1, orjson.dumps(value), 0, 0)
    assert list(store.parts) == [0]


@pytest.mark.parametrize(
    "value", [5, {}, STATEMENT | {"as_of": "soon"}, STATEMENT | {"withheld": ["x"]}, STATEMENT | {"open": 5}]
)
def test_a_statement_of_another_program_is_refused(value: Any) -> None:
    store = WatermarkStore("this")
    key = key_of(STATEMENT["pipe"], STATEMENT["destination"])
    with pytest.raises(ValueError, match=r".+"):
        store.read(key, orjson.dumps(value), b"other")
    assert store.of([STATEMENT["pipe"]], NOW_US) == []
    store.read(key, orjson.dumps(STATEMENT), b"other")
    assert store.of([STATEMENT["pipe"]], NOW_US) != []


def test_a_time_that_no_calendar_has_is_the_last_one() -> None:
    assert iso(2**62) == "9999-12-31T23:59:59.999999Z"
