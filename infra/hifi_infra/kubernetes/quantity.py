"""Quantities and durations of Kubernetes, such as `250m`, `1Gi` and `1m30s`. Pure."""

import re
from typing import Final

_QUANTITY: Final = re.compile(r"(?P<number>\d+(\.\d*)?([eE][+-]?\d{1,3})?)(?P<unit>[A-Za-z]*)")
_DURATION: Final = re.compile(r"((?P<hours>\d+)h)?((?P<minutes>\d+)m)?((?P<seconds>\d+(\.\d+)?)s)?")
_UNITS: Final = {
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "": 1.0,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "P": 1e15,
    "E": 1e18,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
    "Pi": 2.0**50,
    "Ei": 2.0**60,
}


def quantity(text: str) -> float:
    """A quantity as a number.

    Raises:
        ValueError: it is none.
    """
    if (match := _QUANTITY.fullmatch(text)) is None or match["unit"] not in _UNITS:
        raise ValueError(f"{text!r} is no quantity of Kubernetes")
    return float(match["number"]) * _UNITS[match["unit"]]


def duration_s(text: str) -> float:
    """A duration, such as `1m0.5s`, in seconds.

    Raises:
        ValueError: it is none.
    """
    match = _DURATION.fullmatch(text)
    if match is None or not text:
        raise ValueError(f"{text!r} is no duration of Kubernetes")
    return sum(
        float(match[unit] or 0) * seconds
        for unit, seconds in (("hours", 3600), ("minutes", 60), ("seconds", 1))
    )
