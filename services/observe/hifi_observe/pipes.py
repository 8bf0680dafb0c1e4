"""The pipes of the stream as observe needs them: limits, destinations, owners and watched fields."""

from collections.abc import Sequence
from urllib.parse import urlsplit

from hifi.pipe.mask import covers
from hifi.pipe.model import ConnectorDestination, Pipe, Timely
from hifi.pipe.owner import Owner
from hifi.pipe.reader import reader
from hifi.pipe.registry import PipeRegistry
from hifi.pipe.sent_paths import sent_paths
from hifi.pipe.sources.topic import TopicSource
from hifi.pipe.watched_field import WatchedField
from hifi_observe.minutes.availability import DestinationLimits, SloLimits
from hifi_observe.minutes.minute_store import MinuteStore
from hifi_observe.watermark.chains import ChainLink, TopicEnd, links_of, servers_of


class ObservedPipes:
    """The declarations of pipes, by name.

    Args:
        registry: of the stream.
        store: has the minutes of the pipes.
        heartbeat_gap_s: longest gap in ingest's heartbeat in a minute that is up, seconds.
    """

    def __init__(self, registry: PipeRegistry, store: MinuteStore, heartbeat_gap_s: float) -> None:
        self.registry = registry
        self._store = store
        self._heartbeat_gap_s = heartbeat_gap_s

    def names(self) -> list[str]:
        """Names of all pipes."""
        return [revision.pipe.pipe for revision in self.registry.all()]

    def get(self, name: str) -> Pipe | None:
        """A pipe; None: it does not exist."""
        revision = self.registry.get(name)
        return revision.pipe if revision is not None else None

    def exists(self, name: str) -> bool:
        """Whether a pipe is declared, or was and still has minutes or days."""
        return (
            self.registry.get(name) is not None
            or name in self._store.minutes
            or bool(self._store.days.get(name))
        )

    def limits(self) -> dict[str, SloLimits]:
        """Pipe to the limits of its SLO."""
        return {revision.pipe.pipe: self._limits(revision.pipe) for revision in self.registry.all()}

    def limits_of(self, name: str) -> SloLimits | None:
        """Limits of the SLO of a pipe; None: it does not exist."""
        pipe = self.get(name)
        return self._limits(pipe) if pipe is not None else None

    def slo_p95_us(self, name: str) -> int:
        """The SLO of a pipe's p95 lag in microseconds; 0: it does not exist."""
        limits = self.limits_of(name)
        return limits.p95_us if limits is not None else 0

    def first_minute(self, name: str) -> int:
        """The minute in which a pipe was declared, until its first minute is closed; 0 from then on."""
        if self._store.minutes.get(name):
            return 0
        return (self.registry.since_ms(name) or 0) // 60_000

    def with_rollout(self) -> list[str]:
        """The pipes whose outcomes the rollout service judges."""
        return [revision.pipe.pipe for revision in self.registry.all() if revision.rollout or revision.cap]

    def owner_of(self, name: str) -> Owner | None:
        """The owner of a pipe; None: it names none."""
        pipe = self.get(name)
        return pipe.owner if pipe is not None else None

    def owner_names(self, name: str) -> tuple[str, ...] | None:
        """The names of the owner of a pipe; None: the pipe does not exist.

        The first is shown: the path of a webhook may be secret.
        """
        pipe = self.get(name)
        if pipe is None:
            return None
        owner_names = [pipe.owner.email] if pipe.owner is not None and pipe.owner.email else []
        if pipe.owner is not None and pipe.owner.webhook:
            webhook = str(pipe.owner.webhook)
            owner_names += [urlsplit(webhook).hostname or "", webhook]
        return tuple(owner_names)

    def destinations(self) -> dict[str, set[str]]:
        """Pipe to the destinations that it declares."""
        return {
            revision.pipe.pipe: {destination.name for destination in revision.pipe.destinations}
            for revision in self.registry.all()
        }

    def destinations_in_use(self) -> dict[str, set[str]]:
        """Pipe to the destinations of all its revisions that events may have been accepted with."""
        destinations: dict[str, set[str]] = {}
        for revision in self.registry.in_use():
            destination_names = destinations.setdefault(revision.pipe.pipe, set())
            destination_names.update(destination.name for destination in revision.pipe.destinations)
        return destinations

    def declared_at(self, name: str, destination: str) -> int:
        """Offset in the topic `pipes` of the newest revision of a pipe that declares a destination; -1: none does."""
        return max(
            (
                revision.offset
                for revision in self.registry.revisions(name)
                if revision.pipe.destination(destination) is not None
            ),
            default=-1,
        )

    def timely(self, name: str, destination: str) -> Timely:
        """When the watermark of a destination is current; as of a pipe without SLO for one that is not declared."""
        pipe = self.get(name)
        declared_destination = pipe.destination(destination) if pipe is not None else None
        slo = (declared_destination.slo if declared_destination is not None else None) or (
            pipe.slo if pipe is not None else None
        )
        return slo.timely if slo is not None else Timely()

    def links(self) -> dict[str, ChainLink]:
        """Pipe to its link, of pipes that read a Kafka topic which other pipes write."""
        pipes = [revision.pipe for revision in self.registry.all()]
        reads = {
            pipe.pipe: TopicEnd(servers_of(pipe.source.bootstrap), pipe.source.topic)
            for pipe in pipes
            if isinstance(pipe.source, TopicSource) and pipe.source.kind == "kafka"
        }
        if not reads:
            return {}
        writes = {
            (pipe.pipe, destination.name): TopicEnd(
                servers_of(str(destination.settings.get("bootstrap"))), str(destination.settings.get("topic"))
            )
            for pipe in pipes
            for destination in pipe.destinations
            if isinstance(destination, ConnectorDestination) and destination.kind == "kafka"
        }
        return links_of(writes, reads)

    def lake_destinations(self) -> frozenset[tuple[str, str]]:
        """Pipe and name of the destinations that the service lake delivers to."""
        return frozenset(
            (revision.pipe.pipe, destination.name)
            for revision in self.registry.in_use()
            for destination in revision.pipe.destinations
            if reader(destination) == "lake"
        )

    def watched_fields(self) -> dict[str, Sequence[WatchedField]]:
        """Pipe to its watched fields; pipes without any are left out."""
        return {
            revision.pipe.pipe: revision.pipe.watch for revision in self.registry.all() if revision.pipe.watch
        }

    def masks(self, name: str) -> bool:
        """Whether a pipe masks fields; True for one that does not exist or is held."""
        pipe = self.get(name)
        return pipe is None or self.registry.held(name) is not None or bool(pipe.normalize.mask)

    def hides_id(self, name: str) -> bool:
        """Whether the event ids of a pipe come from a field that it masks; True for one that is not there, or held."""
        pipe = self.get(name)
        if pipe is None or self.registry.held(name) is not None:
            return True
        id_field = pipe.source.id
        return id_field is not None and any(
            covers(sent_path, id_field)
            for path in pipe.normalize.mask
            for sent_path in sent_paths(pipe.normalize, path)
        )

    def why_hidden(self, name: str) -> str:
        """The reason why the event ids of a pipe are not shown; empty: they are."""
        if self.get(name) is None:
            return "the pipe was deleted"
        return "the pipe masks it" if self.hides_id(name) else ""

    def _limits(self, pipe: Pipe) -> SloLimits:
        return SloLimits(
            round(pipe.slo.p95 * 1e6),
            pipe.slo.loss,
            self._heartbeat_gap_s,
            destinations={
                destination.name: DestinationLimits(round(destination.slo.p95 * 1e6), destination.slo.loss)
                for destination in pipe.destinations
                if destination.slo is not None
            },
        )
