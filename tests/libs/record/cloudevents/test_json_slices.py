"""JSON is split without changing a byte, and its depth is measured exactly."""

import gc
import importlib.util
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from hifi.record import cloudevents
from hifi.record.cloudevents import json_slices

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
    def depth(element: object) -> int:
        inner_values = (
            element.values() if isinstance(element, dict) else element if isinstance(element, list) else None
        )
        return 0 if inner_values is None else 1 + max(map(depth, inner_values), default=0)

    text = orjson.dumps(value)
    assert json_slices.is_within_depth(text, depth(value))
    if depth(value):
        assert not json_slices.is_within_depth(text, depth(value) - 1)


@given(JSON)
def test_valid_json_is_split_verbatim(value: object) -> None:
    text = orjson.dumps(value)
    assert json_slices.value_slice(b" " + text + b"\n") == text
    assert json_slices.array_elements(b"[ " + text + b" ," + text + b"]") == [text, text]


def work(text: bytes, max_depth: int) -> tuple[int, int]:
    """Lines of Python that the depth check runs, and calls of functions in C; of the source, compiled or not."""
    path = Path(cloudevents.__path__[0]) / "json_slices.py"
    spec = importlib.util.spec_from_file_location("json_slices_source", path)
    assert spec is not None
    assert spec.loader is not None
    source = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(source)
    lines = calls = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        lines += event == "line"
        return trace

    def profile(_: FrameType, event: str, __: Any) -> None:
        nonlocal calls
        calls += event == "c_call"

    gc.disable()  # its callbacks, such as hypothesis has one, would count
    sys.settrace(trace)
    sys.setprofile(profile)
    try:
        assert source.is_within_depth(text, max_depth)
    finally:
        sys.setprofile(None)
        sys.settrace(None)
        gc.enable()
    return lines, calls


def test_the_work_of_the_depth_check_is_linear_and_does_not_grow_with_the_depth() -> None:
    nested = b"[" * 60 + b"]" * 60
    array_texts = [b"[" + b",".join([nested] * count) + b"]" for count in (100, 200)]
    (lines, calls), (long_lines, long_calls) = (work(text, 64) for text in array_texts)
    assert long_calls == calls < 20, "each goes through the whole text once"
    assert lines < 4 * 12_000
    assert long_lines < 2.1 * lines
    shallow = b"[" + b",".join([b"[[]]"] * 10_000) + b"]"
    assert work(shallow, 64)[0] < 50, "usual data is checked without Python code for each bracket"
