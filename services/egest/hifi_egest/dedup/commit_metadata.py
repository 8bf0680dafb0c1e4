"""The metadata of egest's offset commits, for the partition's next owner."""

from dataclasses import dataclass, field

import orjson

from hifi_egest.dedup.copy_key import RAW_LOG


@dataclass(slots=True)
class CommitMetadata:
    """State of the deduplicator at the committed offset.

    Attributes:
        highest_offsets: highest offset of each log.
        newest_us: highest accepted time, microseconds since 1970 UTC.
        floors: topic to the offset from which on outcomes of uncommitted records may be found.
        log_identity: of the topic `raw` that `highest_offsets` has an offset of (`StreamLog`); empty: not known.
    """

    highest_offsets: dict[str, int] = field(default_factory=dict)
    newest_us: int = 0
    floors: dict[str, int] = field(default_factory=dict)
    log_identity: str = ""

    @classmethod
    def parse(cls, metadata: str) -> "CommitMetadata | None":
        """Parse the metadata of the last commit; None if egest did not write it.

        An operator who moves the group's offsets leaves no metadata: what is read again is then delivered again.
        """
        try:
            fields = orjson.loads(metadata)
            floors, log_identity = dict(fields["floors"]), str(fields.get("log", ""))
            return cls(dict(fields["tops"]), int(fields["newest"]), floors, log_identity)
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            return None

    def continue_with(self, log_identity: str) -> bool:
        """Take over with the log that there is; forget the highest offset of another one.

        Args:
            log_identity: of the log; empty: not known.

        Returns:
            Whether there was one to forget: the topic `raw` was created again.
        """
        is_other = bool(self.log_identity and log_identity) and self.log_identity != log_identity
        self.log_identity = log_identity
        return is_other and self.highest_offsets.pop(RAW_LOG, None) is not None

    def serialize(self) -> str:
        """The text that a commit carries."""
        fields = {
            "tops": self.highest_offsets,
            "newest": self.newest_us,
            "floors": self.floors,
            "log": self.log_identity,
        }
        return orjson.dumps(fields).decode()
