"""Fixtures of the tests of cooperative rebalancing."""

import pytest
from tests.support.aiokafka_cooperative.groups import MakeGroup
from tests.support.aiokafka_cooperative.groups import group as make_group


@pytest.fixture
def group(kafka: str) -> MakeGroup:
    """`async with group(partitions=6) as group`: a group, whose traffic runs."""
    return make_group(kafka)
