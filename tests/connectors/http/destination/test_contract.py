"""The contract of destinations, with HTTP, whose receiver recognizes repetitions itself."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.connectors.destination_contract import (
    test_a_destination_that_is_locked_delays_no_other_destination,
    test_a_retry_that_comes_late_does_not_replace_a_newer_row,
    test_each_event_is_written_in_the_order_of_its_key_and_has_its_receipt,
    test_events_that_are_rejected_become_dead_letters_and_the_others_of_the_batch_are_written,
    test_while_a_secret_is_missing_deliveries_go_to_the_retrier,
)
from tests.support.connectors.kind_under_test import KindUnderTest
from tests.support.egest.fake_destination import destination
from tests.support.http.webhook import Webhook

__all__ = [
    "test_a_destination_that_is_locked_delays_no_other_destination",
    "test_a_retry_that_comes_late_does_not_replace_a_newer_row",
    "test_each_event_is_written_in_the_order_of_its_key_and_has_its_receipt",
    "test_events_that_are_rejected_become_dead_letters_and_the_others_of_the_batch_are_written",
    "test_while_a_secret_is_missing_deliveries_go_to_the_retrier",
]  # run here


@pytest.fixture
async def kind() -> AsyncIterator[Webhook]:
    async with destination() as server:
        yield Webhook(server)


@pytest.fixture
def without_secret(kind: Webhook) -> tuple[KindUnderTest, dict[str, Any]]:
    """The kind, and its destination without a secret."""
    return kind, kind.declared(headers={"authorization": {"env": "TEST_NO_SECRET"}})
