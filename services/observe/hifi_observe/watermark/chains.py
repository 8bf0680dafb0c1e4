"""Chains: pipes that write to a Kafka topic which another pipe of the stream reads. Pure.

What a topic between two pipes holds belongs to neither of them, so the earlier of their watermarks would be wrong. A
mark therefore passes the chain: the time up to which the pipes before the topic are settled, then the ends of the
topic; once collect has committed all offsets below them, the time of that; and once the pipe after the topic is settled
up to there, the time at the beginning holds for all of it.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from typing_extensions import TypedDict

from hifi.runtime.clock import MICROSECONDS

_MARKS: Final = 600
"""Marks of a chain under way; of more, every second one is dropped: the time gets coarser, never wrong."""
SLOW_US: Final = 5 * MICROSECONDS
"""A segment that is behind by more is named in `held_by`."""

_T = TypeVar("_T")

Key = tuple[str, str]
"""Pipe and destination."""


class TopicEnd(NamedTuple):
    """A topic that a pipe writes or reads."""

    servers: frozenset[str]
    """Of its cluster, `HOST:PORT`."""
    topic: str


def servers_of(bootstrap: str) -> frozenset[str]:
    """The servers of a list `HOST:PORT,…`."""
    return frozenset(server.strip().lower() for server in bootstrap.split(",") if server.strip())


class ChainLink(NamedTuple):
    """A pipe that reads a topic which other pipes write."""

    pipe: str
    topic: TopicEnd
    upstream: tuple[Key, ...]
    """Those that write to the topic, sorted."""


def links_of(writes: Mapping[Key, TopicEnd], reads: Mapping[str, TopicEnd]) -> dict[str, ChainLink]:
    """Pipe to its link, of pipes that read a topic which pipes write.

    A topic is the same if its name is and the lists of servers have any in common.

    Args:
        writes: pipe and destination to its topic.
        reads: pipe to the topic of its source.
    """
    links = {}
    for pipe, source in reads.items():
        upstream = tuple(
            sorted(
                key
                for key, end in writes.items()
                if end.topic == source.topic and end.servers & source.servers
            )
        )
        if upstream:
            links[pipe] = ChainLink(pipe, source, upstream)
    return links


def circle(links: Mapping[str, ChainLink], pipe: str) -> list[str]:
    """The pipes of a circle from which a pipe is fed; empty: there is none."""
    path: list[str] = []
    finished: set[str] = set()

    def follow(name: str) -> list[str]:
        if name in path:
            return path[path.index(name) :]
        if name in finished or name not in links:
            return []
        path.append(name)
        for upstream_pipe, _ in links[name].upstream:
            pipes = follow(upstream_pipe)
            if pipes:
                return pipes
        path.pop()
        finished.add(name)
        return []

    return follow(pipe)


class ChainJson(TypedDict):
    """The statement about a chain that ends at a destination. Times are ISO 8601 in UTC."""

    settled_until: str | None
    """Every event that any pipe of the chain acknowledged before has its outcome: where it left the chain, or here."""
    via: list[str]
    """The destinations before this pipe, as `<pipe>/<destination>`. While it stays the same, no time goes back."""
    held_by: str | None
    """The segment that is furthest behind; None: none is by more than a few seconds."""
    deleted_at: str | None
    """When it was noticed last that Kafka had deleted records of the topic before collect read them. For a week the
    time stands still."""
    because: list[str]
    """Reasons why no time can be stated, or no later one."""


class ChainReading(NamedTuple):
    """The offsets and times of a topic between two pipes, read in this order."""

    upstream_us: int
    """The pipes before it had been settled up to this time before `ends` was asked for."""
    ends: Mapping[int, int]
    """Partition to its end."""
    read: Mapping[int, int]
    """Partition to the offset below which collect had written everything to `raw`."""
    read_us: int
    """A time that is not before `read` was known, by any clock that states watermarks."""


class _Mark(NamedTuple):
    upstream_us: int
    ends: Mapping[int, int]


class _ReadMark(NamedTuple):
    upstream_us: int
    read_us: int


class Chain:
    """The marks that are on their way through one link."""

    def __init__(self, topic: TopicEnd, upstream: Sequence[str]) -> None:
        self.topic: Final = topic
        self.via: Final = upstream
        """See `via`: marks hold for these alone."""
        self.problem = "its offsets have not been read yet"
        """The reason why its topic cannot be read; empty: it was."""
        self.deleted_us = 0
        """When it was noticed last that records were deleted unread, microseconds since 1970 UTC; 0: never."""
        self._offsets: Mapping[int, int] = {}
        self._waiting_marks: deque[_Mark] = deque()
        self._read_marks: deque[_ReadMark] = deque()
        self._newest_read_us = 0
        """`upstream_us` of the newest mark that collect has passed."""

    def take(self, chain_reading: ChainReading) -> None:
        """Set a mark, and move those that collect has passed."""
        self.problem = ""
        if chain_reading.upstream_us and (
            not self._waiting_marks or self._waiting_marks[-1].upstream_us < chain_reading.upstream_us
        ):
            self._waiting_marks.append(_Mark(chain_reading.upstream_us, dict(chain_reading.ends)))
        while self._waiting_marks and _has_passed(self._waiting_marks[0].ends, chain_reading.read):
            mark = self._waiting_marks.popleft()
            self._read_marks.append(_ReadMark(mark.upstream_us, chain_reading.read_us))
            self._newest_read_us = mark.upstream_us
        offsets = {partition: offset for partition, offset in chain_reading.read.items() if offset}
        self._offsets = {
            partition: max(offset, self._offsets.get(partition, 0)) for partition, offset in offsets.items()
        }
        self._waiting_marks, self._read_marks = _thinned(self._waiting_marks), _thinned(self._read_marks)

    def forget(self, problem: str) -> None:
        """Drop all marks: what was read before counts no more."""
        self.problem = problem
        self._waiting_marks.clear()
        self._read_marks.clear()
        self._newest_read_us = 0

    def note_offsets(
        self, first_offsets: Mapping[int, int], committed_offsets: Mapping[int, int], now_us: int
    ) -> bool:
        """Compare the first offsets of Kafka with the offsets that collect had read at the previous call.

        Args:
            first_offsets: partition to the first offset that Kafka has.
            committed_offsets: partition to the offset that collect has committed; those without are left out.
            now_us: microseconds since 1970 UTC.

        Returns:
            Whether records may have been deleted before they were read.
        """
        previous_offsets = dict(committed_offsets) | dict(self._offsets)
        any_deleted = any(
            first_offsets.get(partition, 0) > offset for partition, offset in previous_offsets.items()
        )
        if any_deleted:
            self.deleted_us = now_us
        self._offsets = {
            partition: max(offset, first_offsets.get(partition, 0))
            for partition, offset in committed_offsets.items()
        }
        return any_deleted

    @property
    def oldest_ends(self) -> Mapping[int, int]:
        """The ends that collect has to pass next; empty: no mark waits for it."""
        return self._waiting_marks[0].ends if self._waiting_marks else {}

    @property
    def newest_read_us(self) -> int:
        """The time that collect has passed; 0: none yet."""
        return self._newest_read_us

    def settled_us(self, settled_us: int) -> int:
        """The time that has passed the whole link, once the pipe after it is settled up to a time; 0: none."""
        return max((mark.upstream_us for mark in self._read_marks if mark.read_us <= settled_us), default=0)

    def drop_before(self, settled_us: int) -> None:
        """Keep of the marks at or below a time, up to which every destination is settled, the newest."""
        while len(self._read_marks) > 1 and self._read_marks[1].read_us <= settled_us:
            self._read_marks.popleft()


def _has_passed(end_offsets: Mapping[int, int], read_offsets: Mapping[int, int]) -> bool:
    return all(read_offsets.get(partition, 0) >= end for partition, end in end_offsets.items())


def _thinned(marks: "deque[_T]") -> "deque[_T]":
    """The marks, or every second one and the newest if there are too many."""
    if len(marks) <= _MARKS:
        return marks
    return deque(mark for index, mark in enumerate(marks) if index % 2 or index == len(marks) - 1)


class ChainSegment(NamedTuple):
    """A segment of a chain, and its settled time, microseconds since 1970 UTC; 0: unknown."""

    name: str
    until_us: int


def held_by(segments: Sequence[ChainSegment], now_us: int) -> str | None:
    """The segment that adds most to the delay of the chain; None: none adds more than a few seconds.

    Args:
        segments: in the order of the chain; each cannot be further than the one before.
        now_us: microseconds since 1970 UTC.
    """
    slowest, slowest_us, previous_us = None, SLOW_US, now_us
    for segment in segments:
        if not segment.until_us:
            return segment.name
        if previous_us - segment.until_us > slowest_us:
            slowest, slowest_us = segment.name, previous_us - segment.until_us
        previous_us = min(previous_us, segment.until_us)
    return slowest


def via(links: Mapping[str, ChainLink], pipe: str) -> list[str]:
    """All destinations whose events come to a pipe, sorted, as `<pipe>/<destination>`."""
    upstream_keys: set[Key] = set()
    pending_pipes = [pipe]
    while pending_pipes:
        link = links.get(pending_pipes.pop())
        for key in link.upstream if link else ():
            if key not in upstream_keys:
                upstream_keys.add(key)
                pending_pipes.append(key[0])
    return sorted(f"{name}/{destination}" for name, destination in upstream_keys)
