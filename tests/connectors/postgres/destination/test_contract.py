"""The contract of destinations, with a PostgreSQL table."""

from typing import Any

import pytest
from tests.support.connectors.destination_contract import *  # noqa: F403 - its tests
from tests.support.connectors.kind_under_test import KindUnderTest
from tests.support.postgres.postgres_table import PostgresTable


@pytest.fixture
def kind(postgres: PostgresTable) -> PostgresTable:
    return postgres


@pytest.fixture
def without_secret(kind: PostgresTable) -> tuple[KindUnderTest, dict[str, Any]]:
    """The kind, and its destination without a secret."""
    return kind, kind.declared(settings={"url": {"env": "TEST_NO_SECRET"}})
