"""What Kafka lacks is told as something that an operator can prepare, not as a wrong setting."""

import contextlib
from typing import Any

import pytest
from aiokafka.errors import UnknownTopicOrPartitionError

from hifi.kafka import admin as kafka_admin
from hifi.kafka.topics import Topics
from hifi.runtime.errors import Unprepared


class _EmptyKafka:
    """A cluster without topics, on which this user may create none."""

    async def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
        code = UnknownTopicOrPartitionError.errno
        return [{"topic": name, "error_code": code, "partitions": []} for name in names]

    async def create_topics(self, topics: list[Any]) -> Any:
        return type("Answer", (), {"topic_errors": [(topic.name, 29, "no ACL") for topic in topics]})


@pytest.mark.parametrize(
    ("create", "message"), [(False, r"s\.raw, .* are missing"), (True, r"refuses the topic s\..*no ACL")]
)
async def test_missing_topics_may_come_later(
    create: bool, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_admin, "_admin", lambda _: contextlib.nullcontext(_EmptyKafka()))
    with pytest.raises(Unprepared, match=message):
        await kafka_admin.create_topics("kafka:9092", Topics("s"), partitions=1, replication=1, create=create)
