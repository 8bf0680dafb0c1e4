"""Destinations are parked and resumed by name; a name that is not declared is refused."""

import asyncio
import uuid

import orjson
from typer.testing import CliRunner

from hifi.kafka.admin import create_topics
from hifi.kafka.topics import Topics, principal_topics
from hifi.pipe.model import Pipe
from hifi.pipe.registry import publish, stream_record
from hifi.pipe.revision import pipe_record
from hifi_cli.app import command_line


def test_a_destination_is_parked_and_resumed_by_name(kafka: str) -> None:
    topics = Topics("t" + uuid.uuid4().hex[:10])
    destination = {"name": "billing", "url": "http://127.0.0.1:9"}
    pipe = Pipe.model_validate(
        {"pipe": "orders", "source": {"keys": [{"sha256": "0" * 64}]}, "destinations": [destination]}
    )

    async def create() -> None:
        for topic_set in (topics, principal_topics(topics.stream)):
            await create_topics(kafka, topic_set, partitions=1, replication=1, timeout_s=60)
        await publish(kafka, topics, [stream_record(1), pipe_record(pipe)])

    def run(*words: str) -> tuple[int, str]:
        connection = ["--kafka", kafka, "--stream", topics.stream]
        result = CliRunner().invoke(command_line(), ["destinations", *words, *connection])
        return result.exit_code, result.output

    asyncio.run(create())
    assert run("park", "orders", "billing", "--reason", "maintenance")[0] == 0
    (row,) = orjson.loads(run("list", "--json")[1])
    assert (row["state"], row["by"], row["reason"]) == ("parked", "operator", "maintenance")
    assert run("resume", "orders", "billing")[0] == 0
    (row,) = orjson.loads(run("list", "--json")[1])
    assert row["state"] == "active"
    assert run("park", "orders", "biling")[0] != 0
