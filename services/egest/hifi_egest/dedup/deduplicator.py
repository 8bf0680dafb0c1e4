"""Recognize the copies among the records of a source partition. Pure.

Services keep the order within a partition, and each rewind returns to a committed offset and leaves no gap. Among the
records that come from one log (`raw`, or one retry topic) a record is therefore a first copy exactly when its offset in
this log is above those of all before it. One offset per log is enough, however long the rewind. The highest offsets
travel in the commit's metadata, as they were at the committed offset rather than as they are now.

What the last owner completed beyond its commit is read from what it wrote (`OutcomeIndex`). The metadata says where to
start: `floors` are ends of those topics, taken before the first uncommitted record was read.
"""

from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import Final

from hifi_egest.dedup.commit_metadata import CommitMetadata
from hifi_egest.dedup.copy_key import RAW_LOG
from hifi_egest.dedup.outcome_index import OutcomeIndex

WINDOW: Final = 4096
"""Minimum number of records within which a copy with another offset in its log is recognized."""


class CopyCheck(Enum):
    """Whether a record is a copy."""

    FIRST = "first"
    COPY = "copy"
    RESET = "reset"
    """A first copy whose offset is not above: the topic that is its log was recreated."""


class Deduplicator:
    """Recognizes copies in one partition during one assignment. Records are passed in the order of their offsets."""

    def __init__(self, metadata: CommitMetadata, outcomes: OutcomeIndex, *, window: int = WINDOW) -> None:
        """Continue where the last owner stopped.

        Args:
            metadata: of the last commit.
            outcomes: already written for records that are read again.
            window: see WINDOW.
        """
        self._committed = metadata
        self._outcomes = outcomes
        self._highest_offsets = dict(metadata.highest_offsets)
        self._newest_us = metadata.newest_us
        self._window = window
        self._newest_keys: set[bytes] = set()
        self._older_keys: set[bytes] = set()
        self._changes: deque[tuple[int, str, int, int]] = deque()
        self._batches: deque[tuple[int, Mapping[str, int]]] = deque()
        self._inherited_floors = metadata.floors
        self._last_check = -1, CopyCheck.FIRST

    def begin_batch(self, first_offset: int, floors: Mapping[str, int]) -> None:
        """Call before the records of a batch are checked.

        Args:
            first_offset: offset of the first one.
            floors: ends of the topics of outcomes, taken before this member could write any outcome of the batch.
        """
        self._batches.append((first_offset, floors))

    def remember(self, key: bytes) -> None:
        """Add the key of a record below the committed offset, to recognize a copy with another offset in its log."""
        self._add(key)

    def check(self, offset: int, key: bytes, log: str | None, log_offset: int, accepted_us: int) -> CopyCheck:
        """Whether a record is a copy.

        Args:
            offset: of the record.
            key: of its work: equal for copies, whatever their offset.
            log: that it comes from; None: only the key counts.
            log_offset: of its original there.
            accepted_us: when ingest accepted the event, microseconds since 1970 UTC.

        Returns:
            The same result if the last offset is checked again, so that a failed step can be repeated.
        """
        if offset == self._last_check[0]:
            return self._last_check[1]
        copy = CopyCheck.FIRST
        if log is not None:
            if log_offset <= self._highest_offsets.get(log, -1):
                # A copy has the accepted time of its first copy, which `newest` already includes.
                copy = CopyCheck.COPY if accepted_us <= self._newest_us else CopyCheck.RESET
                if copy is CopyCheck.RESET and log == RAW_LOG:
                    self._committed.log_identity = ""  # from now on offsets are of another one
            if copy is not CopyCheck.COPY:
                self._highest_offsets[log] = log_offset
                self._newest_us = max(self._newest_us, accepted_us)
                self._changes.append((offset, log, log_offset, self._newest_us))
        if copy is not CopyCheck.COPY:
            if key in self._newest_keys or key in self._older_keys:
                copy = CopyCheck.COPY
            else:
                self._add(key)
        self._last_check = offset, copy
        return copy

    def metadata_at(self, offset: int) -> str:
        """The metadata of a commit of this offset. The offsets never decrease."""
        metadata = self._committed
        changes, batches = self._changes, self._batches
        while changes and changes[0][0] < offset:
            _, log, metadata.highest_offsets[log], metadata.newest_us = changes.popleft()
        while len(batches) > 1 and batches[1][0] <= offset:
            batches.popleft()
        if offset <= self._outcomes.last:
            metadata.floors = dict(self._inherited_floors)
        elif batches:
            metadata.floors = dict(batches[0][1])
        return metadata.serialize()

    def _add(self, key: bytes) -> None:
        self._newest_keys.add(key)
        if len(self._newest_keys) > self._window:
            self._newest_keys, self._older_keys = set(), self._newest_keys
