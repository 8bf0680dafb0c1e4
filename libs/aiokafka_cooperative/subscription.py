"""The subscription that a member sends with JoinGroup: what it reads, what it owns, since which generation.

Pure bytes, as Java's CooperativeStickyAssignor and librdkafka's cooperative-sticky write and read them, so that all
three clients can share a group and any of them can lead it.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from typing import Final

from aiokafka import TopicPartition
from aiokafka.protocol.types import Array, Bytes, Int16, Int32, String

NO_GENERATION: Final = -1

_VERSION: Final = 2
_TOPICS: Final = Array(String("utf-8"))
_OWNED: Final = Array(("topic", String("utf-8")), ("partitions", Array(Int32)))


@dataclass(frozen=True, slots=True)
class MemberSubscription:
    """The subscription that a member sends to the group's leader when it joins."""

    topics: frozenset[str]
    owned: frozenset[TopicPartition] = frozenset()
    """The partitions that it is reading, and goes on reading during the rebalance."""
    generation: int = NO_GENERATION
    """The last generation in which it was assigned partitions; -1: there is none, or the client does not send it."""


def encode_subscription(subscription: MemberSubscription) -> bytes:
    """Encode a subscription as version 2: topics, user data, owned partitions, generation.

    The user data repeats the generation, because Java before 3.2 looks for it there.
    """
    fields = [
        Int16.encode(_VERSION),
        _TOPICS.encode(sorted(subscription.topics)),
        Bytes.encode(Int32.encode(subscription.generation)),
        _OWNED.encode(by_topic(subscription.owned)),
        Int32.encode(subscription.generation),
    ]
    return b"".join(fields)


def decode_subscription(data: bytes) -> MemberSubscription:
    """Decode a subscription of any version; fields that later versions append are ignored.

    Raises:
        ValueError: the bytes are truncated or not a subscription.
    """
    buffer = BytesIO(data)
    version = Int16.decode(buffer)
    topics = _TOPICS.decode(buffer) or []
    user_data = Bytes.decode(buffer) or b""
    owned_topics = (_OWNED.decode(buffer) or []) if version >= 1 else []
    generation: int = Int32.decode(buffer) if version >= 2 else NO_GENERATION
    if generation == NO_GENERATION and len(user_data) >= 4:
        # Java writes only the generation, librdkafka writes it after the previous assignment. That assignment is not
        # a claim: the member may have given some of it back since.
        generation = Int32.decode(BytesIO(user_data[-4:]))
    claimed_partitions = frozenset(
        TopicPartition(topic, number) for topic, numbers in owned_topics for number in numbers
    )
    return MemberSubscription(frozenset(topics), claimed_partitions, generation)


def by_topic(partitions: Iterable[TopicPartition]) -> list[tuple[str, list[int]]]:
    """Group partitions as (topic, partition numbers), both sorted, as Kafka's protocol carries them."""
    numbers: defaultdict[str, list[int]] = defaultdict(list)
    for topic, number in sorted(partitions):
        numbers[topic].append(number)
    return list(numbers.items())
