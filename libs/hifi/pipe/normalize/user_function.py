"""A Python function of the user's, named by import path, between JSON and JSON."""

import importlib
import math
import traceback
from collections.abc import Callable
from typing import Any

from hifi.errors import Misconfigured, Rejected
from hifi.pipe.normalize.lazy_json import encode, parse

_FAILED = "function-failed"


def load(path: str) -> Callable[[bytes], bytes]:
    """What puts data through `module:function`.

    The function gets the data as a dict and returns the new data as one. Whatever it raises makes the event a dead
    letter; only the kind of the error and its line are told, since messages tend to quote values.

    Raises:
        Misconfigured: it cannot be imported.
    """
    module_name, _, name = path.partition(":")
    try:
        function = getattr(importlib.import_module(module_name), name)
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        raise Misconfigured(f"the function {path} cannot be imported: {error!r}") from None
    if not callable(function):
        raise Misconfigured(f"{path} is not a function")

    def call(data: bytes) -> bytes:
        value = parse(data)
        if not isinstance(value, dict):
            raise Rejected("not-an-object", "the data is JSON, but not an object")
        try:
            result = function(value)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any error of the user's code is the event's
            raise Rejected(
                _FAILED, f"{path} raised {type(error).__name__}{_line(error, module_name)}"
            ) from None
        if not isinstance(result, dict):
            raise Rejected(_FAILED, f"{path} returned {type(result).__name__} instead of a dict")
        try:
            text = encode(result)
        except (TypeError, ValueError, RecursionError, OverflowError) as error:
            raise Rejected(
                _FAILED, f"{path} returned what JSON cannot say ({type(error).__name__})"
            ) from None
        if b"null" in text and _has_nan(result):
            raise Rejected(_FAILED, f"{path} returned a number that JSON cannot say")
        return text

    return call


def _line(error: BaseException, module: str) -> str:
    """Where in the user's own module it was raised."""
    lines = [
        number
        for frame, number in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__") == module
    ]
    return f" at line {lines[-1]}" if lines else ""


def _has_nan(value: Any) -> bool:
    """NaN or infinity, which would be written as null."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(_has_nan(each) for each in value.values())
    return isinstance(value, list | tuple) and any(_has_nan(each) for each in value)
