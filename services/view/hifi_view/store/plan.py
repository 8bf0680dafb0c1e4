"""The rows that a batch of records changes, and the account of the batch. Pure."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from hifi_view.store.events import EventPosition, Key, Read, Refusal, RowEvent, Skipped


@dataclass(slots=True)
class Account:
    """The outcomes of the records of an offset range. `read` is the sum of all other counts but `unfit`."""

    read: int = 0
    other: int = 0
    """Of other pipes."""
    no_data: int = 0
    """Filtered out by the pipe, or without data."""
    applied: int = 0
    """The events that became their row."""
    older: int = 0
    """Events whose row showed a newer event already, or the same event: a copy."""
    expired: int = 0
    """Older than the view keeps rows."""
    refused: int = 0
    unfit: int = 0
    """Values that are null because they do not fit."""

    def add(self, account: "Account") -> None:
        """Add another account."""
        for count_field in fields(self):
            setattr(
                self, count_field.name, getattr(self, count_field.name) + getattr(account, count_field.name)
            )

    @property
    def balanced(self) -> bool:
        """Whether each record has one outcome."""
        outcomes = self.other + self.no_data + self.applied + self.older + self.expired + self.refused
        return self.read == outcomes


class RefusedEvent(NamedTuple):
    """An event without a row, and its position."""

    partition: int
    offset: int
    event: str
    reason: str


@dataclass(slots=True)
class PartitionRead:
    """The records read of one partition: offsets `first` up to, not including, `next_offset`."""

    partition: int
    first: int
    next_offset: int
    records: list[tuple[int, Read]] = field(default_factory=list)
    """Offset, and the meaning of the record."""


@dataclass(slots=True)
class BatchPlan:
    """The changes of a batch, to be written in one transaction."""

    rows: dict[Key, RowEvent]
    accounts: list[tuple[PartitionRead, Account]]
    refused: list[RefusedEvent]


def keys_of(batch: Iterable[PartitionRead]) -> set[Key]:
    """The keys whose rows a batch may change."""
    return {
        event.key
        for partition_read in batch
        for _, event in partition_read.records
        if isinstance(event, RowEvent)
    }


def plan(
    batch: Iterable[PartitionRead], shown_positions: Mapping[Key, EventPosition], expired_before_us: int
) -> BatchPlan:
    """Decide, record by record, which event each row shows after the batch.

    Args:
        batch: the records, in the order of the reads.
        shown_positions: key to the position of the event that its row shows now.
        expired_before_us: rows that were accepted before have expired, microseconds since 1970 UTC.
    """
    newest_positions = dict(shown_positions)
    rows: dict[Key, RowEvent] = {}
    accounts: list[tuple[PartitionRead, Account]] = []
    refused: list[RefusedEvent] = []
    for partition_read in batch:
        account = Account(read=len(partition_read.records))
        for offset, event in partition_read.records:
            if isinstance(event, RowEvent):
                account.unfit += event.unfit
                if event.accepted_us < expired_before_us:
                    account.expired += 1
                elif event.key in newest_positions and event.position <= newest_positions[event.key]:
                    account.older += 1
                else:
                    account.applied += 1
                    newest_positions[event.key] = event.position
                    rows[event.key] = event
            elif isinstance(event, Refusal):
                account.refused += 1
                refused.append(RefusedEvent(partition_read.partition, offset, event.event, event.reason))
            elif event is Skipped.OTHER:
                account.other += 1
            else:
                account.no_data += 1
        accounts.append((partition_read, account))
    return BatchPlan(rows, accounts, refused)
