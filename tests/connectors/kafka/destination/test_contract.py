"""The contract of destinations, with a topic of a Kafka cluster."""

from typing import Any

import pytest
from tests.support.connectors.destination_contract import *  # noqa: F403 - its tests
from tests.support.connectors.kind_under_test import KindUnderTest
from tests.support.kafka.out_topic import KeyedTopic


@pytest.fixture
def kind(kafka_topic: KeyedTopic) -> KeyedTopic:
    return kafka_topic


@pytest.fixture
def without_secret(kind: KeyedTopic) -> tuple[KindUnderTest, dict[str, Any]]:
    """The kind, and its destination without a secret."""
    security = {"protocol": "SASL_SSL", "user": "u", "password_file": "/no/file"}
    return kind, kind.declared(settings={"security": security})
