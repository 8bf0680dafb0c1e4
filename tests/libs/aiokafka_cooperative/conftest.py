"""Fixtures of the tests of cooperative rebalancing."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from groups import MakeGroup
from groups import group as make_group


@pytest.fixture
def group(kafka: str) -> MakeGroup:
    """`async with group(partitions=6) as group`: a group, whose traffic runs."""
    return make_group(kafka)
