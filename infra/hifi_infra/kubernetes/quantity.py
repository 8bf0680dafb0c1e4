"""Quantities of Kubernetes, such as `250m` and `1Gi`. Pure."""

import re
from typing import Final

_QUANTITY: Final = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>[A-Za-z]*)")
_UNITS: Final = {
    "n": 1e-9,
    "u": 1e-6,
    "m": 1e-3,
    "": 1.0,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
}


def quantity(text: str) -> float:
    """A quantity as a number.

    Raises:
        ValueError: it is none.
    """
    if (match := _QUANTITY.fullmatch(text)) is None or match["unit"] not in _UNITS:
        raise ValueError(f"{text!r} is no quantity of Kubernetes")
    return float(match["number"]) * _UNITS[match["unit"]]
