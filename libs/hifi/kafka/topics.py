"""The topics of a stream and of a control plane: names, partitions, retention. All topics are declared here."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Protocol

from hifi.runtime.units import seconds

DAY_MS: Final = 24 * 3600 * 1000
EVENT_RETENTION_MS: Final = 7 * DAY_MS
DEAD_LETTER_RETENTION_MS: Final = 30 * DAY_MS
REPLAYS_RETENTION_MS: Final = DEAD_LETTER_RETENTION_MS + 2 * EVENT_RETENTION_MS
"""Kafka deletes whole segments, so it keeps a dead letter for up to a segment's time longer than its retention; the
note of its replay must not go before it."""
PARKED_RETENTION_MS: Final = 30 * DAY_MS
"""Kafka deletes what is parked for longer; the retrier makes dead letters of it before."""
LONGEST_TIER_S: Final = 6 * DAY_MS // 1000
"""A day less than Kafka keeps retry topics, so that a retrier that stands still for a day loses nothing."""
WARM_UP_RETENTION_MS: Final = 3600 * 1000
ACTIONS_RETENTION_MS: Final = 90 * DAY_MS
FOREVER_MS: Final = -1
"""Kafka deletes nothing."""
USAGE_RETENTION_MS: Final = 400 * DAY_MS
CERTIFICATES_RETENTION_MS: Final = DAY_MS
IDS_RETENTION_MS: Final = 2 * 3600 * 1000
"""An hour above the longest window in which normalize recognizes an event that a client sends again."""
SOURCE_POSITIONS_SEGMENT_MS: Final = 10 * 60 * 1000
WATERMARKS_SEGMENT_MS: Final = 10 * 60 * 1000
MAX_RECORD_BYTES: Final = 4 * 1024 * 1024
"""`max.message.bytes` of every topic: at least twice ingest's limit for an event (1 MiB)."""


@dataclass(frozen=True, slots=True)
class Tier:
    """A retry tier: a delay with a topic of its own, in which failed deliveries wait."""

    name: str
    delay_s: float


DEFAULT_TIERS: Final = (
    Tier("5s", 5),
    Tier("30s", 30),
    Tier("2m", 120),
    Tier("10m", 600),
    Tier("1h", 3600),
)


def parse_tier(name: str) -> Tier:
    """Read a delay such as `5s`, which is also the end of the tier's topic name.

    Raises:
        ValueError: it is not a delay.
    """
    if not re.fullmatch(r"[0-9]+(ms|s|m|h|d)", name):
        raise ValueError(f"{name!r} is not a delay; write for example 5s,30s,2m,10m,1h")
    return Tier(name, float(seconds(name)))


def parse_tiers(text: str | Iterable[Tier]) -> tuple[Tier, ...]:
    """Read `5s,30s,2m`: delays in ascending order.

    Raises:
        ValueError: it is not such a list.
    """
    if not isinstance(text, str):
        return tuple(text)
    tiers = tuple(parse_tier(name.strip()) for name in text.split(","))
    if any(later.delay_s <= tier.delay_s for tier, later in pairwise(tiers)):
        raise ValueError("the delays must be in ascending order")
    if tiers[-1].delay_s > LONGEST_TIER_S:
        raise ValueError(
            f"{tiers[-1].name} is longer than {LONGEST_TIER_S // 86400}d: Kafka keeps retry topics for"
            f" {EVENT_RETENTION_MS // DAY_MS} days, so deliveries could be deleted before they are due"
        )
    return tiers


_EVENT_KEY: Final = "event key"
_PIPE: Final = "pipe"


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic to create. `partitions` None: the stream's partition count."""

    name: str
    key: str = ""
    """The keys of its records, for people; empty: they have none."""
    partitions: int | None = None
    compacted: bool = False
    retention_ms: int = EVENT_RETENTION_MS
    segment_ms: int | None = None
    """Time after which Kafka begins a new segment; None: Kafka's default, or at most the retention. Kafka compacts only
    closed segments, so a compacted topic that is written often has short ones."""
    expire_ms: int | None = None
    """Age at which Kafka deletes records of a compacted topic, too; None: never."""

    def configs(self) -> dict[str, str]:
        """The topic's configuration in Kafka."""
        settings = {
            "message.timestamp.type": "LogAppendTime",
            "max.message.bytes": str(MAX_RECORD_BYTES),
            "unclean.leader.election.enable": "false",
        }
        if self.compacted:
            compaction = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"}
            if self.segment_ms is not None:
                compaction["segment.ms"] = str(self.segment_ms)
            if self.expire_ms is not None:
                compaction |= {"cleanup.policy": "compact,delete", "retention.ms": str(self.expire_ms)}
            return settings | compaction
        return settings | {
            "cleanup.policy": "delete",
            "retention.ms": str(self.retention_ms),
            "retention.bytes": "-1",
            # Otherwise Kafka would keep the newest segment of a topic with steady traffic for a week.
            "segment.ms": str(
                EVENT_RETENTION_MS
                if self.retention_ms == FOREVER_MS
                else min(self.retention_ms, EVENT_RETENTION_MS)
            ),
        }


def _certificates_topic(name: str) -> Topic:
    """The reports of certificates of a stream's services, or of the fronts of two colours."""
    return Topic(
        name, "service and instance", partitions=1, compacted=True, expire_ms=CERTIFICATES_RETENTION_MS
    )


class DeclaredTopics(Protocol):
    """All topics of a stream or of a control plane."""

    @property
    def prefix(self) -> str:
        """The name of the stream or the control plane, with which all names begin."""

    def all(self) -> list[Topic]:
        """Every topic, to create it."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The names of the topics of one stream."""

    stream: str
    tiers: tuple[Tier, ...] = DEFAULT_TIERS

    @property
    def prefix(self) -> str:
        """The stream's name, with which all names begin."""
        return self.stream

    @property
    def raw(self) -> str:
        """Accepted events, their data as it was sent."""
        return f"{self.stream}.raw"

    @property
    def normalized(self) -> str:
        """Events that normalize has checked and mapped."""
        return f"{self.stream}.normalized"

    @property
    def enriched(self) -> str:
        """Events with the destinations that want them."""
        return f"{self.stream}.enriched"

    @property
    def retry_out(self) -> str:
        """Deliveries whose retry delay is over."""
        return f"{self.stream}.retry-out"

    @property
    def dead_letter(self) -> str:
        """Dead letters: events and deliveries that cannot go on, with the reason."""
        return f"{self.stream}.dead-letter"

    @property
    def parked(self) -> str:
        """Deliveries of destinations that stay down, each once, until the destination is resumed."""
        return f"{self.stream}.parked"

    @property
    def destinations(self) -> str:
        """Which destinations are parked, and the offsets of `parked` from which they have deliveries there."""
        return f"{self.stream}.destinations"

    @property
    def replays(self) -> str:
        """Offsets of dead letters that were replayed, so that repeating a replay changes nothing."""
        return f"{self.stream}.replays"

    @property
    def receipts(self) -> str:
        """The outcome of each delivery, without data."""
        return f"{self.stream}.receipts"

    @property
    def accepted(self) -> str:
        """Ack reports: the events that ingest and collect acknowledged, each second."""
        return f"{self.stream}.accepted"

    @property
    def ids(self) -> str:
        """Idempotency keys and fingerprints, by which normalize recognizes events that a client sends again."""
        return f"{self.stream}.ids"

    @property
    def source_positions(self) -> str:
        """The highest position of each source partition that normalize has passed."""
        return f"{self.stream}.source-positions"

    @property
    def source_progress(self) -> str:
        """How far collect has read each source that keeps no position for its readers, such as a table or a folder."""
        return f"{self.stream}.source-progress"

    @property
    def pipes(self) -> str:
        """The pipes in force with their rollouts, and the number of partitions of the stream."""
        return f"{self.stream}.pipes"

    @property
    def write_keys(self) -> str:
        """Hashes of issued write keys."""
        return f"{self.stream}.write-keys"

    @property
    def key_uses(self) -> str:
        """Their last uses."""
        return f"{self.stream}.key-uses"

    @property
    def key_usage(self) -> str:
        """Events and bytes accepted with each write key, by day and process of ingest."""
        return f"{self.stream}.key-usage"

    @property
    def certificates(self) -> str:
        """When the certificates of each instance expire; only with TLS."""
        return f"{self.stream}.certificates"

    @property
    def minutes(self) -> str:
        """Closed minutes, current figures, and the positions from which observe reads on."""
        return f"{self.stream}.minutes"

    @property
    def watermarks(self) -> str:
        """Until when all events of a pipe have their outcome at a destination, and what is open."""
        return f"{self.stream}.watermarks"

    @property
    def alarms(self) -> str:
        """Alarms and silences, all in partition 0."""
        return f"{self.stream}.alarms"

    @property
    def enrich_leader(self) -> str:
        """No records: its consumer group elects the active instance of enrich."""
        return f"{self.stream}.enrich-leader"

    @property
    def collect_leader(self) -> str:
        """No records: a consumer group for each table or folder elects the instance of collect that reads it."""
        return f"{self.stream}.collect-leader"

    @property
    def lake_leader(self) -> str:
        """No records: its consumer group elects the active instance of lake."""
        return f"{self.stream}.lake-leader"

    @property
    def state_leader(self) -> str:
        """No records: a consumer group for each step elects its instance of state."""
        return f"{self.stream}.state-leader"

    @property
    def folds(self) -> str:
        """How far state is with each step; observe verifies it."""
        return f"{self.stream}.folds"

    @property
    def enrich_warm_up(self) -> str:
        """Made-up events of the pipes in force, with which enrich warms up before it is ready."""
        return f"{self.stream}.enrich-warm-up"

    def retry_in(self, tier: Tier) -> str:
        """Deliveries that failed and wait for the delay of a retry tier."""
        return self.retry_in_prefix + tier.name

    @property
    def retry_in_prefix(self) -> str:
        """The prefix of the names of all retry topics."""
        return f"{self.stream}.retry-in."

    def tier_of(self, topic: str) -> Tier | None:
        """The tier of a retry topic, configured or not; None: it is no retry topic of the stream."""
        if not topic.startswith(self.retry_in_prefix):
            return None
        try:
            return parse_tier(topic.removeprefix(self.retry_in_prefix))
        except ValueError:
            return None

    def with_removed_tiers(self, existing: Iterable[str]) -> "Topics":
        """These topics and the tiers that were removed from `HIFI_TIERS`: what waits in their topics still comes back.

        Args:
            existing: names of topics in Kafka.
        """
        existing_tiers = {tier.name: tier for name in existing if (tier := self.tier_of(name)) is not None}
        tiers = {**existing_tiers, **{tier.name: tier for tier in self.tiers}}
        return replace(self, tiers=tuple(sorted(tiers.values(), key=lambda tier: (tier.delay_s, tier.name))))

    def group(self, service: str) -> str:
        """The id of a service's consumer group."""
        return f"{self.stream}.{service}"

    def source_writer(self, pipe: str) -> str:
        """The transactional id with which collect writes the progress of a pipe's source."""
        return f"{self.stream}.collect.{pipe}"

    def step_writer(self, pipe: str) -> str:
        """The transactional id with which state writes the progress of a pipe's step."""
        return f"{self.stream}.state.{pipe}"

    @property
    def spark_group_prefix(self) -> str:
        """The prefix of the group ids that Spark's Kafka sources make up. They commit nothing to them."""
        return f"{self.stream}.enrich-spark"

    def all(self) -> list[Topic]:
        """Every topic of the stream, to create it."""
        return [
            Topic(self.raw, _EVENT_KEY),
            Topic(self.accepted, "epoch"),
            Topic(self.normalized, _EVENT_KEY),
            Topic(self.enriched, _EVENT_KEY),
            *(Topic(self.retry_in(tier), _EVENT_KEY) for tier in self.tiers),
            Topic(self.retry_out, _EVENT_KEY),
            Topic(self.receipts, _EVENT_KEY),
            Topic(self.parked, _EVENT_KEY, retention_ms=PARKED_RETENTION_MS),
            Topic(self.destinations, "pipe and destination; with partition", partitions=1, compacted=True),
            Topic(self.dead_letter, _EVENT_KEY, retention_ms=DEAD_LETTER_RETENTION_MS),
            Topic(self.replays, retention_ms=REPLAYS_RETENTION_MS),
            Topic(
                self.source_positions,
                "pipe and source partition",
                compacted=True,
                segment_ms=SOURCE_POSITIONS_SEGMENT_MS,
            ),
            Topic(
                self.source_progress,
                "pipe, source and entry",
                partitions=1,
                compacted=True,
                segment_ms=SOURCE_POSITIONS_SEGMENT_MS,
            ),
            Topic(self.ids, retention_ms=IDS_RETENTION_MS),
            Topic(self.pipes, "pipe; of a revision: with number", partitions=1, compacted=True),
            Topic(self.write_keys, "id", partitions=1, compacted=True),
            Topic(self.key_uses, "id", partitions=1, compacted=True),
            Topic(
                self.key_usage,
                "pipe, id, day and process",
                partitions=1,
                compacted=True,
                expire_ms=USAGE_RETENTION_MS,
            ),
            _certificates_topic(self.certificates),
            Topic(self.minutes, "kind, pipe, minute, partition", compacted=True),
            Topic(
                self.watermarks,
                "pipe and destination",
                partitions=1,
                compacted=True,
                segment_ms=WATERMARKS_SEGMENT_MS,
            ),
            Topic(self.alarms, "alarm or silence"),
            Topic(self.collect_leader, partitions=1),
            Topic(self.enrich_leader, partitions=1),
            Topic(self.lake_leader, partitions=1),
            Topic(self.state_leader, partitions=1),
            Topic(
                self.folds,
                "pipe of the step",
                partitions=1,
                compacted=True,
                segment_ms=SOURCE_POSITIONS_SEGMENT_MS,
            ),
            Topic(self.enrich_warm_up, "always the same", retention_ms=WARM_UP_RETENTION_MS),
        ]


@dataclass(frozen=True)
class PrincipalTopics:
    """The names of the topics of a control plane that every stream has, also without its services."""

    control: str

    @property
    def prefix(self) -> str:
        """The control plane's name, with which all names begin."""
        return self.control

    @property
    def principals(self) -> str:
        """Who may use observe and the management API, with hashes of tokens."""
        return f"{self.control}.principals"

    @property
    def audit(self) -> str:
        """Who changed what, and who read the data of events."""
        return f"{self.control}.audit"

    @property
    def last_used(self) -> str:
        """Last uses of tokens."""
        return f"{self.control}.last-used"

    def all(self) -> list[Topic]:
        """The topics, to create them."""
        return [
            Topic(self.principals, "name", partitions=1, compacted=True),
            Topic(self.last_used, "name", partitions=1, compacted=True),
            Topic(self.audit, "subject", partitions=1, retention_ms=FOREVER_MS),
        ]


def principal_topics(stream: str) -> PrincipalTopics:
    """The topics of a stream's principals and audit, unless the settings of its services name another control plane."""
    return PrincipalTopics(f"{stream}-control")


@dataclass(frozen=True)
class ControlTopics(PrincipalTopics):
    """The names of the topics of one control plane."""

    @property
    def actions(self) -> str:
        """Actions of the actors: a record when one begins, and one when it ends."""
        return f"{self.control}.actions"

    @property
    def health(self) -> str:
        """Verdicts on the stream, its services and its pipes."""
        return f"{self.control}.health"

    @property
    def declared(self) -> str:
        """Declarations of pipes, all of them, since each names the one that it replaces."""
        return f"{self.control}.declared"

    @property
    def requests(self) -> str:
        """Requests of people during a rollout or a deployment."""
        return f"{self.control}.requests"

    @property
    def rollouts(self) -> str:
        """How far the newest declaration of each pipe is, and why."""
        return f"{self.control}.rollouts"

    @property
    def releases(self) -> str:
        """The release that each service should have."""
        return f"{self.control}.releases"

    @property
    def deployments(self) -> str:
        """How far the newest release of each service is, and why."""
        return f"{self.control}.deployments"

    @property
    def colours(self) -> str:
        """Share and state of each colour of the stream, in one record."""
        return f"{self.control}.colours"

    @property
    def step_times(self) -> str:
        """Of which times each colour has events of a step, so that the other one knows which results are partial."""
        return f"{self.control}.step-times"

    @property
    def certificates(self) -> str:
        """When the certificates of the fronts expire; only with TLS."""
        return f"{self.control}.certificates"

    @property
    def schemas(self) -> str:
        """The schema registry: versions of subjects, compatibility levels, and the last id."""
        return f"{self.control}.schemas"

    @property
    def registrar(self) -> str:
        """The transactional id with which the schema registry is changed, by one instance of manage at a time."""
        return f"{self.control}.registrar"

    @property
    def rollout_writer(self) -> str:
        """Prefix of the rollout service's transactional ids; Kafka refuses what an earlier instance still writes."""
        return f"{self.control}.rollout-writer"

    @property
    def deployer(self) -> str:
        """The deployer's transactional id: what an earlier one writes after a later one began is refused."""
        return f"{self.control}.deployer"

    @property
    def actor(self) -> str:
        """The transactional id with which the right to an action is taken."""
        return f"{self.control}.actor"

    def all(self) -> list[Topic]:
        """Every topic of the control plane, to create it."""
        return [
            Topic(self.actions, partitions=1, retention_ms=ACTIONS_RETENTION_MS),
            Topic(self.health, "scope", partitions=1, compacted=True),
            Topic(self.declared, _PIPE, partitions=1, retention_ms=FOREVER_MS),
            Topic(self.requests, "scope", partitions=1, retention_ms=ACTIONS_RETENTION_MS),
            Topic(self.rollouts, _PIPE, partitions=1, compacted=True),
            Topic(self.releases, "service", partitions=1, compacted=True),
            Topic(self.deployments, "service", partitions=1, compacted=True),
            *super().all(),
            Topic(self.colours, "always the same", partitions=1, compacted=True),
            Topic(
                self.step_times,
                "pipe of the step and colour",
                partitions=1,
                compacted=True,
                segment_ms=SOURCE_POSITIONS_SEGMENT_MS,
            ),
            _certificates_topic(self.certificates),
            Topic(self.schemas, "kind, subject, version", partitions=1, compacted=True),
        ]
