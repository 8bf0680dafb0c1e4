"""Imports the Python functions that pipes name."""

import importlib
from collections.abc import Callable
from typing import Any

from hifi.errors import Misconfigured


def import_function(path: str) -> Callable[..., Any]:
    """The function that `module:function` names.

    Raises:
        Misconfigured: the module cannot be imported, or has no such function.
    """
    module, _, name = path.partition(":")
    try:
        function = getattr(importlib.import_module(module), name)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - importing runs the user's code, which may raise anything
        raise Misconfigured(
            f"the function {path} cannot be imported: {type(error).__name__}: {error}"
        ) from None
    if not callable(function):
        raise Misconfigured(f"{path} is not a function")
    return function  # type: ignore[no-any-return]
