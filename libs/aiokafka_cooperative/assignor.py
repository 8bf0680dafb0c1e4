"""Who reads which partition: sticky, balanced, handed over in two steps. Pure: no I/O, no clock, no state.

KIP-54 (sticky assignment) and KIP-429 (cooperative rebalancing), with what KAFKA-13419 and KAFKA-14639 taught
about claims of an earlier generation. The bytes are those that Java's CooperativeStickyAssignor and
librdkafka's cooperative-sticky send and understand, so that all three can share a group and any can lead it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Final, TypeAlias

from aiokafka import TopicPartition
from aiokafka.protocol.types import Array, Bytes, Int16, Int32, String

PROTOCOL: Final = "cooperative-sticky"
NO_GENERATION: Final = -1

_VERSION: Final = 2
_TOPICS: Final = Array(String("utf-8"))
_OWNED: Final = Array(("topic", String("utf-8")), ("partitions", Array(Int32)))


@dataclass(frozen=True, slots=True)
class Member:
    """What a member of the group says about itself when it joins."""

    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    """What it holds now, and goes on reading meanwhile."""
    generation: int = NO_GENERATION
    """The last generation in which it was assigned something; -1: there was none, or it does not say."""


def encode_member(member: Member) -> bytes:
    """The subscription for JoinGroup, version 2: topics, user data, owned partitions, generation.

    The user data is the generation once more: Java before 3.2 looks for it there.
    """
    fields = [
        Int16.encode(_VERSION),
        _TOPICS.encode(sorted(member.topics)),
        Bytes.encode(Int32.encode(member.generation)),
        _OWNED.encode(by_topic(member.owned)),
        Int32.encode(member.generation),
    ]
    return b"".join(fields)


def decode_member(data: bytes) -> Member:
    """Read a subscription of any version. What later versions add stands at the end and is not looked at.

    Raises:
        ValueError: the bytes end too early, or are no subscription at all.
    """
    buffer = BytesIO(data)
    version = Int16.decode(buffer)
    topics = _TOPICS.decode(buffer) or []
    user_data = Bytes.decode(buffer) or b""
    owned = (_OWNED.decode(buffer) or []) if version >= 1 else []
    generation: int = Int32.decode(buffer) if version >= 2 else NO_GENERATION
    if generation == NO_GENERATION and len(user_data) >= 4:
        # Java writes the generation alone, librdkafka behind the assignment before. That assignment is no
        # claim: the member may have given some of it back since.
        generation = Int32.decode(BytesIO(user_data[-4:]))
    claimed = frozenset(TopicPartition(topic, number) for topic, numbers in owned for number in numbers)
    return Member(frozenset(topics), claimed, generation)


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    """Partitions as (topic, numbers), both sorted: the form in which Kafka's protocol carries them."""
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for topic, number in sorted(partitions):
        numbers[topic].append(number)
    return list(numbers.items())


def assign(
    members: Mapping[str, Member], partitions: Mapping[str, int]
) -> dict[str, frozenset[TopicPartition]]:
    """One round of the protocol: what each member may read from now on.

    A partition that is to move is left out until its owner, which sees that, has given it back and joined
    again; the round after that hands it over. Nobody waits for partitions that stay where they are.

    Args:
        members: by member id.
        partitions: how many partitions each topic has; a topic that is missing has none.
    """
    return {
        name: frozenset(tp for tp in share if not _held_by_another(tp, name, members))
        for name, share in balance(members, partitions).items()
    }


def _held_by_another(tp: TopicPartition, name: str, members: Mapping[str, Member]) -> bool:
    """Whether another member may still read the partition, so that this one has to wait for it.

    Any claim counts, however old: its owner reads on until it is told otherwise (KAFKA-14639). The exception
    is a claim older than this member's own: that owner lost the partition a while ago (KAFKA-13419).
    """
    own = members[name]
    oldest = own.generation if tp in own.owned else NO_GENERATION
    others = (member for other, member in members.items() if other != name)
    return any(tp in member.owned and member.generation >= oldest for member in others)


def owners(members: Mapping[str, Member]) -> dict[TopicPartition, str]:
    """Whose claim to a partition holds: that of the newest generation; nobody's where two are equally new."""
    claims: defaultdict[TopicPartition, list[tuple[int, str]]] = defaultdict(list)
    for name, member in members.items():
        for tp in member.owned:
            claims[tp].append((member.generation, name))
    holders: dict[TopicPartition, str] = {}
    for tp, claimed in claims.items():
        newest = max(generation for generation, _ in claimed)
        names = [name for generation, name in claimed if generation == newest]
        if len(names) == 1:
            holders[tp] = names[0]
    return holders


def balance(members: Mapping[str, Member], partitions: Mapping[str, int]) -> dict[str, set[TopicPartition]]:
    """The assignment to aim for: no load can be evened out further, and as little as possible moves.

    The loads are the best possible for any mix of subscriptions: no chain of moves is left that leads from a
    member to one with at least two partitions less (a "cost-reducing path" in Harvey, Ladner, Lovász and
    Tamir, Semi-Matchings for Bipartite Graphs and Load Balancing, 2003). With equal subscriptions the number
    of moves is the least possible; with different ones every chain is the shortest, which comes close.
    The same input gives the same answer.
    """
    draft = _Draft(members, partitions)
    while chain := draft.chain():
        for move in chain:
            draft.follow(*move)
    return draft.share


_Move: TypeAlias = tuple[str, str, str]
"""From a member, of a topic, to a member."""


class _Draft:
    """An assignment in the making: at first everybody keeps what is theirs, the rest goes where least is."""

    def __init__(self, members: Mapping[str, Member], partitions: Mapping[str, int]) -> None:
        subscribed = set().union(*(member.topics for member in members.values()))
        topics = sorted(topic for topic in subscribed if partitions.get(topic, 0) > 0)
        self._readers = {
            topic: sorted(name for name in members if topic in members[name].topics) for topic in topics
        }
        self._owners = owners(members)
        self.share: dict[str, set[TopicPartition]] = {name: set() for name in members}
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in members}
        self._newcomers: dict[str, Counter[str]] = {name: Counter() for name in members}
        free = []
        for tp in (TopicPartition(topic, number) for topic in topics for number in range(partitions[topic])):
            owner = self._owners.get(tp)
            if owner in self._readers[tp.topic]:
                self._give(tp, owner)
            else:
                free.append(tp)
        # Those with the least choice first; within a topic in order, so that each topic is spread over all.
        for tp in sorted(free, key=lambda tp: (len(self._readers[tp.topic]), tp)):
            self._give(tp, min(self._readers[tp.topic], key=lambda name: self._eagerness(name, tp.topic)))

    def chain(self) -> list[_Move]:
        """The shortest chain of moves that ends at least two partitions below its start; empty if none does.

        Its last move comes first: a member between gives before it takes, so that it passes on no newcomer.
        """
        by_load = sorted(self.share, key=lambda name: (-self._load(name), name))
        for start in by_load:
            if self._load(start) < self._load(by_load[-1]) + 2:
                break
            came: dict[str, _Move] = {}
            layer = [start]
            while layer:
                reached = [move for name in layer for move in self._moves(name)]
                layer = []
                for move in sorted(reached, key=self._preference):
                    if move[2] not in came and move[2] != start:
                        came[move[2]] = move
                        layer.append(move[2])
                if layer and self._load(layer[0]) + 2 <= self._load(start):
                    return list(_trace(came, layer[0], start))
        return []

    def follow(self, source: str, topic: str, target: str) -> None:
        """Move that partition of the topic which costs the least stickiness."""
        tp = min(
            (tp for tp in self.share[source] if tp.topic == topic),
            key=lambda tp: (self._owners.get(tp) == source, self._owners.get(tp) != target, tp),
        )
        self.share[source].remove(tp)
        self._counts[source][topic] -= 1
        self._newcomers[source][topic] -= self._owners.get(tp) != source
        self._give(tp, target)

    def _give(self, tp: TopicPartition, name: str) -> None:
        self.share[name].add(tp)
        self._counts[name][tp.topic] += 1
        self._newcomers[name][tp.topic] += self._owners.get(tp) != name

    def _load(self, name: str) -> int:
        return len(self.share[name])

    def _eagerness(self, name: str, topic: str) -> tuple[int, int, str]:
        return self._load(name), self._counts[name][topic], name

    def _moves(self, source: str) -> Iterator[_Move]:
        for topic, count in self._counts[source].items():
            if count:
                for target in self._readers[topic]:
                    yield source, topic, target

    def _preference(self, move: _Move) -> tuple[int, bool, int, _Move]:
        """To where least is; then what costs no stickiness; then of the topic that is spread least evenly."""
        source, topic, target = move
        sticks = not self._newcomers[source][topic]
        return self._load(target), sticks, self._counts[target][topic] - self._counts[source][topic], move


def _trace(came: Mapping[str, _Move], target: str, start: str) -> Iterator[_Move]:
    while target != start:
        yield came[target]
        target = came[target][0]
