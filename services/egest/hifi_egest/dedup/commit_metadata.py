"""The metadata of egest's offset commits, for the partition's next owner."""

from dataclasses import dataclass, field

import orjson


@dataclass(slots=True)
class CommitMetadata:
    """State of the deduplicator at the committed offset.

    Attributes:
        highest_offsets: highest offset of each log.
        newest_us: highest accepted time, microseconds since 1970 UTC.
        floors: topic to the offset from which on outcomes of uncommitted records may be found.
    """

    highest_offsets: dict[str, int] = field(default_factory=dict)
    newest_us: int = 0
    floors: dict[str, int] = field(default_factory=dict)

    @classmethod
    def parse(cls, metadata: str) -> "CommitMetadata | None":
        """Parse the metadata of the last commit; None if egest did not write it.

        An operator who moves the group's offsets leaves no metadata: what is read again is then delivered again.
        """
        try:
            fields = orjson.loads(metadata)
            return cls(dict(fields["tops"]), int(fields["newest"]), dict(fields["floors"]))
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            return None

    def serialize(self) -> str:
        """The text that a commit carries."""
        fields = {"tops": self.highest_offsets, "newest": self.newest_us, "floors": self.floors}
        return orjson.dumps(fields).decode()
