"""The records of `raw`: events as ingest and collect write them. Pure."""

from typing import Final, final

from hifi.record.headers import Headers
from hifi.record.identity import identity_stem, write_identity
from hifi.record.record import Record, new_record


@final
class RawRecords:
    """Records of one partition of `raw`, whose sequences follow each other.

    Attributes:
        first_sequence: of the first record, in the epoch of the partition.
        records: in order.
        minutes: that the records count in, minutes since 1970 UTC.
    """

    __slots__ = ("_epoch", "_minute", "_prefix", "_stem", "first_sequence", "minutes", "records")

    def __init__(self, epoch: int, first_sequence: int) -> None:
        """None yet.

        Args:
            epoch: of the partition, 64 bits.
            first_sequence: of the first record.
        """
        self.first_sequence: Final = first_sequence
        self.records: list[Record] = []
        self.minutes: list[int] = []
        self._epoch = epoch
        self._prefix = self._stem = b""
        self._minute = -1

    def add(
        self,
        key: bytes,
        data: bytes | None,
        headers: Headers,
        prefix: bytes,
        minute: int,
        hop: tuple[str, bytes],
        position: tuple[str, bytes] | None = None,
        backfill: bool = False,
    ) -> None:
        """Add the record of an event.

        Args:
            key: of the record.
            data: of the event; None: it has none, or cannot be read.
            headers: of the event itself.
            prefix: from `hifi.record.identity.identity_prefix`.
            minute: that it counts in, minutes since 1970 UTC.
            hop: from `hifi.record.hop.write_first_hop`.
            position: from `hifi.record.source_position.position_header`; None: it was not read from a source.
            backfill: whether collect read it while it caught up with a source.
        """
        if (
            minute != self._minute or prefix is not self._prefix
        ):  # events that follow each other mostly share both
            self._stem = identity_stem(prefix, minute, self._epoch)
            self._prefix, self._minute = prefix, minute
        identity = write_identity(self._stem, self.first_sequence + len(self.records), backfill)
        packed_headers = [identity, hop] if position is None else [identity, hop, position]
        self.records.append(new_record(key, data, packed_headers + headers))
        self.minutes.append(minute)
