"""A function of the user changes the numbers that it computes, and no others."""

from pathlib import Path

import pytest

from hifi.runtime.errors import Rejected
from hifi_normalize.functions.user_function import load_function

FUNCTIONS = """
from dataclasses import dataclass
from datetime import date
@dataclass
class Point:
    x: float
    y: float | None = None
def add(data):
    data["sum"] = data["a"] + 1
    return data
def day(data): return {"at": date(2026, 1, 2)}
def point(data): return data | {"p": [Point(data["x"])]}
def point_of_nan(data): return {"p": [Point(float("nan"))]}
def infinite_set(data): return {"p": {float("-inf")}}
"""
NUMBERS = '"b":1.10,"c":[18446744073709551616,-0.0,1E+400]'


def test_numbers_keep_their_digits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "exact_functions.py").write_text(FUNCTIONS)
    monkeypatch.setenv("HIFI_PIPES_FUNCTION_FOLDERS", str(tmp_path))
    for name, data, expected in (
        ("add", f'{{"a":1,{NUMBERS}}}', f'{{"a":1,{NUMBERS},"sum":2}}'),
        ("add", '{"a":0.50}', '{"a":0.50,"sum":1.5}'),
        ("add", '{"a":18446744073709551616}', '{"a":18446744073709551616,"sum":18446744073709551617}'),
        ("day", "{}", '{"at":"2026-01-02"}'),
        ("point", '{"x":1.50,"n":null}', '{"x":1.50,"n":null,"p":[{"x":1.50,"y":null}]}'),
    ):
        assert load_function(f"exact_functions:{name}")(data.encode()).decode() == expected


def test_a_number_that_json_does_not_have_is_refused_wherever_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "infinite_functions.py").write_text(FUNCTIONS)
    monkeypatch.setenv("HIFI_PIPES_FUNCTION_FOLDERS", str(tmp_path))
    for name in ("point_of_nan", "infinite_set"):
        with pytest.raises(Rejected, match="returned NaN or infinity"):
            load_function(f"infinite_functions:{name}")(b"{}")
