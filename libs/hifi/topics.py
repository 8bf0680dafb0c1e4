"""Every topic of a stream, declared in this one place."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from hifi.units import seconds

DAY_MS: Final = 24 * 3600 * 1000
EVENT_RETENTION_MS: Final = 7 * DAY_MS
DEAD_LETTER_RETENTION_MS: Final = 30 * DAY_MS
WARM_UP_RETENTION_MS: Final = 3600 * 1000
IDS_RETENTION_MS: Final = 2 * 3600 * 1000
"""Above the longest window in which an event that a client sends again is known, by an hour to spare."""
MAX_RECORD_BYTES: Final = 4 * 1024 * 1024
"""`max.message.bytes` of every topic: at least twice ingest's limit of one event (1 MiB)."""


@dataclass(frozen=True, slots=True)
class Tier:
    """A delay that a failed delivery waits for in a retry topic of its own."""

    name: str
    delay_s: float


DEFAULT_TIERS: Final = (
    Tier("5s", 5),
    Tier("30s", 30),
    Tier("2m", 120),
    Tier("10m", 600),
    Tier("1h", 3600),
)


def parse_tiers(text: str | Iterable[Tier]) -> tuple[Tier, ...]:
    """Read `5s,30s,2m`: delays in ascending order, each the name of a topic too.

    Raises:
        ValueError: the text is no such list.
    """
    if not isinstance(text, str):
        return tuple(text)
    names = [name.strip() for name in text.split(",")]
    if bad := [name for name in names if not re.fullmatch(r"[0-9]+(ms|s|m|h|d)", name)]:
        raise ValueError(f"{bad[0]!r} is not a delay; write for example 5s,30s,2m,10m,1h")
    tiers = tuple(Tier(name, float(seconds(name))) for name in names)
    if any(later.delay_s <= tier.delay_s for tier, later in pairwise(tiers)):
        raise ValueError("the delays must ascend")
    return tiers


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic to create. `partitions` None: as many as the stream has."""

    name: str
    partitions: int | None = None
    compacted: bool = False
    retention_ms: int = EVENT_RETENTION_MS

    def configs(self) -> dict[str, str]:
        """Kafka's settings of the topic, as text."""
        settings = {
            "message.timestamp.type": "LogAppendTime",
            "max.message.bytes": str(MAX_RECORD_BYTES),
            "unclean.leader.election.enable": "false",
        }
        if self.compacted:
            return settings | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
        return settings | {
            "cleanup.policy": "delete",
            "retention.ms": str(self.retention_ms),
            "retention.bytes": "-1",
            # Without it a topic that is never silent would keep its newest segment for a week.
            "segment.ms": str(min(self.retention_ms, EVENT_RETENTION_MS)),
        }


@dataclass(frozen=True, slots=True)
class Topics:
    """The names of the topics of one stream."""

    stream: str
    tiers: tuple[Tier, ...] = DEFAULT_TIERS

    @property
    def raw(self) -> str:
        """What ingest accepted, data byte for byte."""
        return f"{self.stream}.raw"

    @property
    def normalized(self) -> str:
        """What passed normalize."""
        return f"{self.stream}.normalized"

    @property
    def enriched(self) -> str:
        """What passed enrich, with the destinations that want it. Only enrich writes it."""
        return f"{self.stream}.enriched"

    @property
    def retry_out(self) -> str:
        """Deliveries that are due again."""
        return f"{self.stream}.retry-out"

    @property
    def dead_letter(self) -> str:
        """What no service could pass on, with the reason."""
        return f"{self.stream}.dead-letter"

    @property
    def replays(self) -> str:
        """Which dead letters were replayed, so that repeating a replay is harmless."""
        return f"{self.stream}.replays"

    @property
    def receipts(self) -> str:
        """The outcome of every delivery."""
        return f"{self.stream}.receipts"

    @property
    def accepted(self) -> str:
        """What ingest acknowledged, as ranges."""
        return f"{self.stream}.accepted"

    @property
    def ids(self) -> str:
        """Digests of the ids that clients gave their events: what the next owner of a partition has to know."""
        return f"{self.stream}.ids"

    @property
    def pipes(self) -> str:
        """The declared pipes and the stream's partition count."""
        return f"{self.stream}.pipes"

    @property
    def minutes(self) -> str:
        """What observe knows of each minute."""
        return f"{self.stream}.minutes"

    @property
    def alarms(self) -> str:
        """Alarms with their start, end and cause."""
        return f"{self.stream}.alarms"

    @property
    def enrich_leader(self) -> str:
        """One partition, no records: its group elects the active driver of enrich."""
        return f"{self.stream}.enrich-leader"

    @property
    def enrich_warm_up(self) -> str:
        """Made-up records that an instance of enrich lets go round in it before it is ready. Nobody else reads it."""
        return f"{self.stream}.enrich-warm-up"

    def retry_in(self, tier: Tier) -> str:
        """Deliveries that wait for the delay of a tier."""
        return f"{self.stream}.retry-in.{tier.name}"

    def group(self, service: str) -> str:
        """The consumer group of a service."""
        return f"{self.stream}.{service}"

    def all(self) -> list[Topic]:
        """Every topic of the stream, to be created at its start."""
        events = [self.raw, self.normalized, self.enriched, self.retry_out, self.receipts, self.accepted]
        events += [self.retry_in(tier) for tier in self.tiers]
        return [
            *(Topic(name) for name in events),
            Topic(self.dead_letter, retention_ms=DEAD_LETTER_RETENTION_MS),
            Topic(self.replays, retention_ms=DEAD_LETTER_RETENTION_MS),
            Topic(self.ids, retention_ms=IDS_RETENTION_MS),
            Topic(self.pipes, partitions=1, compacted=True),
            Topic(self.minutes, compacted=True),
            Topic(self.alarms),
            Topic(self.enrich_leader, partitions=1),
            Topic(self.enrich_warm_up, retention_ms=WARM_UP_RETENTION_MS),
        ]
