"""No pattern that meets texts of others takes more than linear time on any of them."""

import ast
import importlib
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
DECLARED: Final = frozenset(
    {
        "hifi.runtime.certificates",  # files of the operator
        "hifi.spark.null_logic",
        "hifi_postgres.destination.declared_types",
    }
)
"""Modules whose patterns meet only what pipes and operators declare."""
METHODS: Final = frozenset({"match", "fullmatch", "search", "sub", "split", "findall", "finditer"})
BEGINNINGS: Final = ("", "1.", "[", '"', "a/b;", "P", "2020-01-01T")
REPEATED: Final = (
    *("1", "0", "a", " ", ".", "1.", "-", "1a", "/", "[", "[1]", "(", "é", "%Y"),
    *('"', "\\", '\\"', ";a=", '="', "a.a", "\n", "\r\n\r\n", "-0", "--", "{1}"),
)
ENDS: Final = ("", "x", "\0")


def _patterns(value: Any) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        yield from _patterns(tuple(value.values()))
    elif isinstance(value, tuple):
        for member in value:
            yield from _patterns(member)


def _uses() -> Iterator[tuple[str, re.Pattern[Any], str]]:
    """Name, pattern and method of each use of a pattern at the top of a module."""
    for folder in ("libs", "connectors/*", "services/*"):
        for file in sorted(ROOT.glob(f"{folder}/hifi*/**/*.py")):
            source = file.read_text("utf-8")
            parts = file.relative_to(ROOT).with_suffix("").parts
            module = ".".join(parts[1 if folder == "libs" else 2 :])
            if "re.compile(" not in source or module in DECLARED:
                continue
            attributes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Attribute)]
            for name, value in vars(importlib.import_module(module)).items():
                methods = {
                    node.attr
                    for node in attributes
                    if isinstance(node.value, ast.Name) and node.value.id == name and node.attr in METHODS
                }
                for pattern, method in product(_patterns(value), methods or {"fullmatch"}):
                    yield f"{module}.{name}", pattern, method


def _time_s(use: Callable[[Any], Any], text: str | bytes, repetitions: int = 1) -> float:
    times_s = []
    for _ in range(repetitions):
        start_s = time.perf_counter()
        result = use(text)
        if isinstance(result, Iterator):
            list(result)
        times_s.append(time.perf_counter() - start_s)
    return min(times_s)


def _texts(length: int, *, as_bytes: bool) -> Iterator[str | bytes]:
    for beginning, repeated, end in product(BEGINNINGS, REPEATED, ENDS):
        text = beginning + repeated * (length // len(repeated)) + end
        yield text.encode() if as_bytes else text


def _slowed_by(pattern: re.Pattern[Any], method: str) -> str | None:
    """The beginning of a text of which the fourfold takes far more than four times as long; None: there is none."""
    as_bytes = isinstance(pattern.pattern, bytes)
    use = getattr(pattern, method)
    if method == "sub":
        use = partial(use, b"" if as_bytes else "")
    for short, long in zip(_texts(1000, as_bytes=as_bytes), _texts(4000, as_bytes=as_bytes), strict=True):
        if _time_s(use, long) > 8 * _time_s(use, short) and _time_s(use, long, 5) > 8 * _time_s(
            use, short, 5
        ):
            return repr(short[:30])
    return None


def test_the_time_of_a_pattern_is_linear_in_the_length_of_its_text() -> None:
    uses = list(_uses())
    assert len(uses) > 50, "the patterns are not found"
    slowed = {name: _slowed_by(pattern, method) for name, pattern, method in uses}
    assert {name: text for name, text in slowed.items() if text is not None} == {}


@pytest.mark.parametrize(
    ("pattern", "method", "text"),
    [
        (r"[+-]?(\d+\.?\d*|\.\d+)([Ee][+-]?\d+)?", "fullmatch", "1111"),
        (r"\s*(\[[\d:+-]+\])+\s*=", "sub", "    "),
        (r'"(?:\\.|[^"\\])*"', "finditer", '\\"'),
    ],
)
def test_a_pattern_whose_time_is_quadratic_is_found(pattern: str, method: str, text: str) -> None:
    slowed_by = _slowed_by(re.compile(pattern), method)
    assert slowed_by is not None
    assert text in slowed_by or repr(text)[1:-1] in slowed_by
