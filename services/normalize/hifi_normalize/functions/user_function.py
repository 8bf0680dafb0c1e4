"""Call a Python function of the user on the data of an event."""

import traceback
from collections.abc import Callable
from typing import Any, Final

import msgspec

from hifi.kafka.topics import MAX_RECORD_BYTES
from hifi.pipe.function_import import import_function
from hifi.runtime import exact_json
from hifi.runtime.errors import Rejected

_FAILED = "function-failed"


def load_function(path: str) -> Callable[[bytes], bytes]:
    """Import `module:function` and wrap it as a function from JSON to JSON.

    The function takes the data as a dict and returns the new data as a dict; numbers that it passes on keep their
    digits. Any error that it raises makes the event a dead letter, with the type and line of the error; its message is
    left out because it may quote values.

    Args:
        path: `module:function`.

    Raises:
        Misconfigured: the function cannot be imported.
    """
    function = import_function(path)
    module_name = path.partition(":")[0]

    def call(data: bytes) -> bytes:
        event_data = _decoded(data)
        if not isinstance(event_data, dict):
            raise Rejected("not-an-object", "the data is JSON, but not an object")
        try:
            result = function(event_data)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - any error of the user's code rejects the event
            raise Rejected(
                _FAILED, f"{path} raised {type(error).__name__}{_line(error, module_name)}"
            ) from None
        if not isinstance(result, dict):
            raise Rejected(_FAILED, f"{path} returned {type(result).__name__} instead of a dict")
        try:
            result_json = _ENCODER.encode(result)
        except (TypeError, ValueError, RecursionError, OverflowError) as error:
            raise Rejected(
                _FAILED, f"{path} returned a value that is not JSON ({type(error).__name__})"
            ) from None
        if len(result_json) > MAX_RECORD_BYTES:
            raise Rejected(
                _FAILED,
                f"{path} returned {len(result_json):,} bytes of JSON; a record may have {MAX_RECORD_BYTES:,}",
            )
        if b"null" in result_json and _has_non_finite(result):
            raise Rejected(_FAILED, f"{path} returned NaN or infinity, which is not JSON")
        return result_json

    return call


def _line(error: BaseException, module: str) -> str:
    """The line of the user's module where an error was raised."""
    line_numbers = [
        line_number
        for frame, line_number in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__") == module
    ]
    return f" at line {line_numbers[-1]}" if line_numbers else ""


def _decoded(data: bytes) -> Any:
    try:
        return exact_json.loads_floats(data)
    except ValueError:
        raise Rejected("not-json", "the data is not JSON: its syntax is invalid") from None


def _number(value: Any) -> msgspec.Raw:
    return msgspec.Raw(exact_json.dumps(value))


def _has_non_finite(result: Any) -> bool:
    """Whether a float is infinite or no number, which the encoder writes as null, at every depth of what it writes."""
    return exact_json.has_non_finite(msgspec.to_builtins(result, enc_hook=lambda _: None))


_ENCODER: Final = msgspec.json.Encoder(enc_hook=_number)
"""It writes more types than `exact_json`, such as times."""
