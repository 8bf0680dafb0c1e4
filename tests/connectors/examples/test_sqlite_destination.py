"""The contract of destinations, with the example `sqlite`. It has no secret."""

import pytest
from tests.support.connectors.destination_contract import (
    test_a_batch_with_an_event_that_is_rejected_writes_nothing,
    test_a_destination_that_is_locked_delays_no_other_destination,
    test_a_retry_that_comes_late_does_not_replace_a_newer_row,
    test_an_older_event_changes_nothing_and_the_same_event_is_written_once,
    test_each_event_is_written_in_the_order_of_its_key_and_has_its_receipt,
    test_events_of_two_logs_with_equal_partitions_and_offsets_are_written_once_each,
    test_events_that_are_rejected_become_dead_letters_and_the_others_of_the_batch_are_written,
    test_of_events_of_a_key_from_two_logs_the_one_that_was_accepted_later_stands,
)
from tests.support.connectors.sqlite_table import SqliteTable

__all__ = [
    "test_a_batch_with_an_event_that_is_rejected_writes_nothing",
    "test_a_destination_that_is_locked_delays_no_other_destination",
    "test_a_retry_that_comes_late_does_not_replace_a_newer_row",
    "test_an_older_event_changes_nothing_and_the_same_event_is_written_once",
    "test_each_event_is_written_in_the_order_of_its_key_and_has_its_receipt",
    "test_events_of_two_logs_with_equal_partitions_and_offsets_are_written_once_each",
    "test_events_that_are_rejected_become_dead_letters_and_the_others_of_the_batch_are_written",
    "test_of_events_of_a_key_from_two_logs_the_one_that_was_accepted_later_stands",
]  # run here


@pytest.fixture
def kind(sqlite: SqliteTable) -> SqliteTable:
    return sqlite
