"""JSON is split without changing a byte, and its depth is measured exactly."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi_ingest.decode import json_slices
from hifi_ingest.decode.event import InvalidEvent

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(JSON)
def test_depth_is_measured_exactly(value: object) -> None:
    def depth(service: object) -> int:
        inner = (
            service.values() if isinstance(service, dict) else service if isinstance(service, list) else None
        )
        return 0 if inner is None else 1 + max(map(depth, inner), default=0)

    text = orjson.dumps(value)
    json_slices.check_depth(text, depth(value))
    if depth(value):
        with pytest.raises(InvalidEvent):
            json_slices.check_depth(text, depth(value) - 1)


@given(JSON)
def test_valid_json_is_split_verbatim(value: object) -> None:
    text = orjson.dumps(value)
    assert json_slices.value_slice(b" " + text + b"\n") == text
    assert json_slices.array_elements(b"[ " + text + b" ," + text + b"]") == [text, text]
