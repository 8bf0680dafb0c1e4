"""The cooperative-sticky assignment: which member reads which partition. No I/O, no clock, no state.

KIP-54 (sticky assignment) and KIP-429 (cooperative rebalancing), with the rules of KAFKA-13419 and KAFKA-14639 for
claims of an earlier generation.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Final, TypeAlias

from aiokafka import TopicPartition

from aiokafka_cooperative.subscription import NO_GENERATION, MemberSubscription

PROTOCOL: Final = "cooperative-sticky"


def assign(
    members: Mapping[str, MemberSubscription], partitions: Mapping[str, int]
) -> dict[str, frozenset[TopicPartition]]:
    """The assignment of one rebalance: what each member may read from now on.

    A partition that moves is left out until its owner has revoked it and joined again; the next rebalance assigns it
    to its new owner. Partitions that do not move are never interrupted.

    Args:
        members: subscription by member id.
        partitions: partition count by topic; a topic that is missing has none.
    """
    return {
        name: frozenset(tp for tp in share if not _owned_by_another(tp, name, members))
        for name, share in balance(members, partitions).items()
    }


def _owned_by_another(tp: TopicPartition, name: str, members: Mapping[str, MemberSubscription]) -> bool:
    """Whether another member may still be reading the partition, so that this member has to wait for it.

    A claim counts however old it is, because its owner reads on until the partition is revoked (KAFKA-14639). The
    exception is a claim older than this member's own: that owner has lost the partition since (KAFKA-13419).
    """
    subscription = members[name]
    oldest_generation = subscription.generation if tp in subscription.owned else NO_GENERATION
    other_members = (member for other_name, member in members.items() if other_name != name)
    return any(tp in member.owned and member.generation >= oldest_generation for member in other_members)


def owners(members: Mapping[str, MemberSubscription]) -> dict[TopicPartition, str]:
    """The owner of each claimed partition: the claim of the newest generation; none if two are equally new."""
    claims: defaultdict[TopicPartition, list[tuple[int, str]]] = defaultdict(list)
    for name, member in members.items():
        for tp in member.owned:
            claims[tp].append((member.generation, name))
    holders: dict[TopicPartition, str] = {}
    for tp, claimants in claims.items():
        newest_generation = max(generation for generation, _ in claimants)
        names = [name for generation, name in claimants if generation == newest_generation]
        if len(names) == 1:
            holders[tp] = names[0]
    return holders


def balance(
    members: Mapping[str, MemberSubscription], partitions: Mapping[str, int]
) -> dict[str, set[TopicPartition]]:
    """The target assignment: as even as possible, with as few moves as possible.

    The loads are optimal for any mix of subscriptions: no chain of moves is left that leads from a member to one with
    at least two partitions less (a "cost-reducing path" in Harvey, Ladner, Lovász and Tamir, Semi-Matchings for
    Bipartite Graphs and Load Balancing, 2003). With equal subscriptions the number of moves is minimal; with different
    ones every chain is the shortest, which comes close. The same input gives the same result.
    """
    draft = _AssignmentDraft(members, partitions)
    while chain := draft.shortest_chain():
        for move in chain:
            draft.move(*move)
    return draft.share


_Move: TypeAlias = tuple[str, str, str]
"""From a member, one partition of a topic, to a member."""


class _AssignmentDraft:
    """An assignment being balanced. Initially members keep what they own; free partitions go to the least loaded."""

    def __init__(self, members: Mapping[str, MemberSubscription], partitions: Mapping[str, int]) -> None:
        subscribed_topics = set().union(*(member.topics for member in members.values()))
        topics = sorted(topic for topic in subscribed_topics if partitions.get(topic, 0) > 0)
        self._readers = {
            topic: sorted(name for name in members if topic in members[name].topics) for topic in topics
        }
        self._owners = owners(members)
        self.share: dict[str, set[TopicPartition]] = {name: set() for name in members}
        self._counts: dict[str, Counter[str]] = {name: Counter() for name in members}
        self._newcomers: dict[str, Counter[str]] = {name: Counter() for name in members}
        free_partitions = []
        for tp in (TopicPartition(topic, number) for topic in topics for number in range(partitions[topic])):
            owner = self._owners.get(tp)
            if owner in self._readers[tp.topic]:
                self._add(tp, owner)
            else:
                free_partitions.append(tp)
        # Partitions with the fewest readers first; within a topic in order, so that each topic is spread over all.
        for tp in sorted(free_partitions, key=lambda tp: (len(self._readers[tp.topic]), tp)):
            self._add(tp, min(self._readers[tp.topic], key=lambda name: self._load_order(name, tp.topic)))

    def shortest_chain(self) -> list[_Move]:
        """The shortest chain of moves that ends at least two partitions below its start; empty if there is none.

        The last move comes first: a member in the middle gives a partition before it gets one, so that it does not
        pass on the one it has just been given.
        """
        names_by_load = sorted(self.share, key=lambda name: (-self._load(name), name))
        for start in names_by_load:
            if self._load(start) < self._load(names_by_load[-1]) + 2:
                break
            move_to: dict[str, _Move] = {}
            layer = [start]
            while layer:
                moves = [move for name in layer for move in self._moves(name)]
                layer = []
                for move in sorted(moves, key=self._move_order):
                    if move[2] not in move_to and move[2] != start:
                        move_to[move[2]] = move
                        layer.append(move[2])
                if layer and self._load(layer[0]) + 2 <= self._load(start):
                    return list(_trace(move_to, layer[0], start))
        return []

    def move(self, source: str, topic: str, target: str) -> None:
        """Move the partition of the topic that costs the least stickiness."""
        tp = min(
            (tp for tp in self.share[source] if tp.topic == topic),
            key=lambda tp: (self._owners.get(tp) == source, self._owners.get(tp) != target, tp),
        )
        self.share[source].remove(tp)
        self._counts[source][topic] -= 1
        self._newcomers[source][topic] -= self._owners.get(tp) != source
        self._add(tp, target)

    def _add(self, tp: TopicPartition, name: str) -> None:
        self.share[name].add(tp)
        self._counts[name][tp.topic] += 1
        self._newcomers[name][tp.topic] += self._owners.get(tp) != name

    def _load(self, name: str) -> int:
        return len(self.share[name])

    def _load_order(self, name: str, topic: str) -> tuple[int, int, str]:
        return self._load(name), self._counts[name][topic], name

    def _moves(self, source: str) -> Iterator[_Move]:
        for topic, count in self._counts[source].items():
            if count:
                for target in self._readers[topic]:
                    yield source, topic, target

    def _move_order(self, move: _Move) -> tuple[int, bool, int, _Move]:
        """The least loaded target first; then moves that cost no stickiness; then the least evenly spread topic."""
        source, topic, target = move
        costs_stickiness = not self._newcomers[source][topic]
        return (
            self._load(target),
            costs_stickiness,
            self._counts[target][topic] - self._counts[source][topic],
            move,
        )


def _trace(move_to: Mapping[str, _Move], target: str, start: str) -> Iterator[_Move]:
    while target != start:
        yield move_to[target]
        target = move_to[target][0]
