"""Creating topics and publishing as the publisher; on a Kafka on which hifi may not create topics."""

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from tests.support.kafka.secured_kafka import SecuredKafka
from typer.testing import CliRunner

from hifi.kafka.acl_admin import create_acls
from hifi.kafka.security import use
from hifi.kafka.security.access import access, user
from hifi.kafka.topic_check import TopicCheck
from hifi.kafka.topics import Topics
from hifi.pipe.registry import publish, read_registry, stream_record
from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import Health
from hifi_cli.app import command_line
from hifi_infra.kafka.credentials import ADMIN
from hifi_infra.kafka.secured_stream import secure_stream
from hifi_infra.kafka.setup_job import SetupSettings, set_up

PIPE = """
pipe: one
source: {keys: [{env: KEY}]}
destinations: [{name: d, url: "http://127.0.0.1:9/"}]
"""


@pytest.fixture
def as_role(secured: SecuredKafka) -> Iterator[object]:
    """Makes this process a role of a stream until the end of the test."""

    def become(topics: Topics, role: str) -> None:
        use(secured.bootstrap, secured.credentials.security(user(topics, role)))

    yield become
    use(secured.bootstrap, secured.credentials.security(ADMIN))


def _settings(secured: SecuredKafka, stream: str, **overrides: object) -> SetupSettings:
    return SetupSettings.model_validate({"kafka": secured.bootstrap, "stream": stream} | overrides)


async def test_the_publisher_sets_up_a_stream_and_publishes_pipes(
    secured: SecuredKafka, as_role, tmp_path: Path
) -> None:
    (tmp_path / "one.yaml").write_text(PIPE)
    topics = Topics("provisioned")
    await secure_stream(secured.bootstrap, topics, secured.credentials)
    as_role(topics, "publisher")
    await set_up(_settings(secured, topics.stream, partitions=2, pipes_folder=tmp_path))
    as_role(topics, "operator")
    published = await read_registry(secured.bootstrap, topics)
    assert (published.partitions, set(published.pipes)) == (2, {"one"})


async def test_a_service_cannot_publish_a_pipe(secured: SecuredKafka, as_role) -> None:
    as_role(secured.topics, "normalize")
    with pytest.raises(Misconfigured, match=r"may write s\.pipes, which only the publisher may"):
        await publish(secured.bootstrap, secured.topics, [stream_record(1)])


async def test_a_service_without_its_acls_is_not_ready_and_says_why(secured: SecuredKafka, as_role) -> None:
    as_role(secured.topics, "retrier")
    health = Health("ingest", "ingest-1")
    topic_names = [secured.topics.raw, secured.topics.accepted]
    waiting = asyncio.create_task(TopicCheck(secured.bootstrap, topic_names, lambda: 1, health).start())
    try:
        async with asyncio.timeout(20):
            while "may not use s." not in str(health.waiting):
                await asyncio.sleep(0.05)
    finally:
        waiting.cancel()


async def test_without_permission_to_create_topics_the_missing_ones_are_named(secured: SecuredKafka) -> None:
    settings = _settings(secured, "missing", partitions=2, create_topics=False)
    with pytest.raises(
        Misconfigured, match=r"missing\.raw, .* are missing .*`hifi topics show --stream missing"
    ):
        await set_up(settings)


async def test_topics_made_as_shown_are_accepted_and_others_are_refused(secured: SecuredKafka) -> None:
    result = CliRunner().invoke(
        command_line(),
        ["topics", "show", "--stream", "made", "--partitions", "2", "--replication", "1", "--format", "json"],
    )
    topic_counts = json.loads(result.output)
    async with secured.client(AIOKafkaAdminClient, secured.credentials.security(ADMIN)) as admin:
        await admin.create_topics(
            [
                NewTopic(
                    topic_text["name"],
                    topic_text["partitions"],
                    topic_text["replication"],
                    topic_configs=topic_text["configs"],
                )
                for topic_text in topic_counts
            ]
        )
    await set_up(_settings(secured, "made", partitions=2, create_topics=False))

    async with secured.client(AIOKafkaAdminClient, secured.credentials.security(ADMIN)) as admin:
        await admin.create_topics(
            [
                NewTopic(
                    "wrong.raw",
                    2,
                    1,
                    topic_configs={"message.timestamp.type": "CreateTime", "max.message.bytes": "4194304"},
                )
            ]
        )
    with pytest.raises(Misconfigured, match=r"wrong\.raw has message\.timestamp\.type=CreateTime and needs"):
        await set_up(_settings(secured, "wrong", partitions=2))


async def test_acls_are_created_once(secured: SecuredKafka) -> None:
    topics = Topics("new")
    acls_by_user = {
        f"User:{user(topics, role)}": service_access.acls() for role, service_access in access(topics).items()
    }
    count = sum(map(len, acls_by_user.values()))
    assert await create_acls(secured.bootstrap, acls_by_user) == count
    assert await create_acls(secured.bootstrap, acls_by_user) == 0


async def test_acls_on_a_kafka_without_authorizer_are_an_error(kafka: str) -> None:
    with pytest.raises(Misconfigured, match="Kafka has no authorizer"):
        await create_acls(kafka, {"User:me": access(Topics("s"))["ingest"].acls()})


@pytest.mark.more
def test_no_password_is_in_a_process_list_or_a_readable_file(secured: SecuredKafka) -> None:
    """Brokers run and have been formatted: neither their arguments nor files that others may read hold a password."""
    passwords = [file.read_text() for file in (secured.credentials.folder / "users").iterdir()]
    process_list = subprocess.run(["ps", "axwwe"], capture_output=True, text=True, check=True).stdout
    assert not [password for password in passwords if password in process_list]
    for file in secured.cluster.data.rglob("*"):
        if file.is_file() and file.stat().st_mode & 0o077:
            content = file.read_bytes().rstrip(b"\0")  # indexes are longer than what they hold
            assert not [password for password in passwords if password.encode() in content], file
