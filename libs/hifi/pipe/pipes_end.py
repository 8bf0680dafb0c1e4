"""The end of the topic `pipes`: a revision at or beyond it was never published, so no service may wait for it."""

from typing import Final, NamedTuple

from aiokafka import TopicPartition

from hifi.kafka.clients import topic_consumer
from hifi.kafka.topics import Topics
from hifi.runtime.clock import now_us

_MARGIN_MS: Final = 60_000
"""Between publishing a revision and an end that must include it: more than two clocks differ, and than a broker may lag
that was frozen and leads no more."""


class PipesEnd(NamedTuple):
    """The end of the topic `pipes`, as Kafka reported it."""

    offset: int
    """Of the next record."""
    before_ms: int
    """Revisions published before are below `offset`; milliseconds since 1970 UTC."""

    def excludes(self, revision_offset: int, existed_ms: int) -> bool:
        """Whether the revision that an event names was never published, so that waiting for it has no end.

        Args:
            revision_offset: that the event names.
            existed_ms: when the event existed already, such as its append time, milliseconds since 1970 UTC.
        """
        return revision_offset >= self.offset and existed_ms < self.before_ms

    def excludes_sql(self, revision_offset: str) -> str:
        """`excludes` as Spark SQL, for records of Kafka, which existed at their `timestamp`.

        Args:
            revision_offset: SQL of the offset that an event names (bigint).
        """
        return f"{revision_offset} >= {self.offset}L and unix_millis(timestamp) < {self.before_ms}L"


NOTHING_KNOWN: Final = PipesEnd(0, 0)


async def read_pipes_end(bootstrap: str, client_id: str, topics: Topics) -> PipesEnd:
    """Ask Kafka for the end of the topic `pipes`.

    Args:
        bootstrap: the stream's Kafka, `HOST:PORT,…`.
        client_id: name in the logs and quotas of the broker.
        topics: of the stream.

    Raises:
        aiokafka.errors.KafkaError, OSError: Kafka did not answer; the wait goes on.
    """
    asked_ms = now_us() // 1000
    partition = TopicPartition(topics.pipes, 0)
    async with topic_consumer(bootstrap, client_id) as consumer:
        end_offsets = await consumer.end_offsets([partition])
    return PipesEnd(end_offsets[partition], asked_ms - _MARGIN_MS)


def never_published(revision_offset: int, end: PipesEnd) -> str:
    """The detail of the dead letter of an event that `end` excludes."""
    return (
        f"the event names the revision at offset {revision_offset} of the topic pipes, which ends at {end.offset}: it"
        " was never published there, so the event's masks are not known; find what wrote the event, and replay the dead"
        " letter, which takes the current revision"
    )
