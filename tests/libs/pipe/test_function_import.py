"""Importing the functions that pipes name."""

import math

import pytest

from hifi.errors import Misconfigured
from hifi.pipe.function_import import import_function


def test_a_function_is_imported() -> None:
    assert import_function("math:sqrt") is math.sqrt


@pytest.mark.parametrize("path", ["nosuchmodule:f", "math:nosuch", "math:pi"])
def test_a_missing_function_is_named(path: str) -> None:
    with pytest.raises(Misconfigured, match=path.partition(":")[2]):
        import_function(path)
