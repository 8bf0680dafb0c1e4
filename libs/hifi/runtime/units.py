"""Types of values in pipes and settings: durations, rates, names and paths."""

import re
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)/(s|m|h)")
_BYTE_RATE: Final = re.compile(r"(\d+(?:\.\d+)?)(KiB|MiB|GiB)?/(s|m|h)")
_BYTES: Final = {None: 1.0, "KiB": 1024.0, "MiB": 1024.0**2, "GiB": 1024.0**3}


def seconds(text: Any) -> Any:
    """Read a duration such as `250ms`, `10s`, `2m`, `24h` or `30d` as seconds; a number is in seconds already.

    Raises:
        ValueError: not a duration.
    """
    if not isinstance(text, str):
        return text
    match = _DURATION.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a duration; write for example 250ms, 10s, 2m, 24h or 30d")
    return float(match[1]) * _SECONDS[match[2]]


def per_second(text: Any) -> Any:
    """Read a rate such as `500/s`, `90/m` or `1000/h` per second; a number is per second already.

    Raises:
        ValueError: not a rate.
    """
    if not isinstance(text, str):
        return text
    match = _RATE.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a rate; write for example 500/s, 90/m or 1000/h")
    return float(match[1]) / _SECONDS[match[2]]


def bytes_per_second(text: Any) -> Any:
    """Read a rate such as `512KiB/s` or `10MiB/m` as bytes per second; a number is bytes per second already.

    Raises:
        ValueError: not a rate of bytes.
    """
    if not isinstance(text, str):
        return text
    match = _BYTE_RATE.fullmatch(text)
    if not match:
        raise ValueError(f"{text!r} is not a rate of bytes; write for example 512KiB/s or 10MiB/m")
    return float(match[1]) * _BYTES[match[2]] / _SECONDS[match[3]]


Seconds = Annotated[
    float,
    BeforeValidator(seconds),
    Field(ge=0),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": f"^{_DURATION.pattern}$"}]}
    ),
]
PerSecond = Annotated[
    float,
    BeforeValidator(per_second),
    Field(gt=0),
    WithJsonSchema(
        {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "pattern": f"^{_RATE.pattern}$"}]}
    ),
]
BytesPerSecond = Annotated[
    float,
    BeforeValidator(bytes_per_second),
    Field(gt=0),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "number", "minimum": 0},
                {"type": "string", "pattern": f"^{_BYTE_RATE.pattern}$"},
            ]
        }
    ),
]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,62}$")]
"""Name of a pipe, destination or lookup; used in headers, metric labels and URLs."""
FieldName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]{0,127}$")]
"""Top-level field that needs no quotes in SQL."""
FieldPath = Annotated[str, StringConstraints(pattern=r"^[^.\s]+(\.[^.\s]+)*$")]
"""Field, with dots into nested objects: `address.city`."""
PythonPath = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$")]
"""Import path of a function: `package.module:function`."""
