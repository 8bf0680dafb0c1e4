"""Seeds of random tests: a few in CI, the others in the second tier."""

from typing import Any

import pytest


def seeds(in_ci: int, of: int) -> list[Any]:
    """The seeds 0 to `of` - 1, those from `in_ci` on with the marker `more`."""
    return [*range(in_ci), *(pytest.param(seed, marks=pytest.mark.more) for seed in range(in_ci, of))]
