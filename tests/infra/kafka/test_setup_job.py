"""A stream is made ready by a program that may run again and again."""

import uuid
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from hifi.control.declaration import Declaration
from hifi.control.principals.principal import token_sha256
from hifi.control.principals.principal_store import read_principals, revoke_principal
from hifi.kafka.admin import partition_counts
from hifi.kafka.topics import ControlTopics, Topics
from hifi.kafka.visit import write_records
from hifi.pipe.model import ConnectorDestination, Pipe
from hifi.pipe.registry import read_registry
from hifi.runtime.clock import now_us
from hifi.runtime.errors import Misconfigured, Retryable
from hifi_infra.kafka import stream_setup
from hifi_infra.kafka.cluster import KafkaCluster
from hifi_infra.kafka.setup_job import SetupSettings, set_up
from hifi_infra.kafka.stream_setup import prepare, put_in_force
from hifi_infra.ports import free_port

PIPE = """
pipe: {name}
source: {{keys: [{{env: KEY_{name}}}]}}
destinations: [{{name: d, url: "http://127.0.0.1:9/{path}"}}]
"""


@pytest.fixture
def stream() -> str:
    return f"s{uuid.uuid4().hex[:10]}"


def settings(kafka: str, stream: str, **overrides: object) -> SetupSettings:
    return SetupSettings.model_validate({"kafka": kafka, "stream": stream} | overrides)


def write(folder: Path, name: str, path: str = "a") -> None:
    (folder / f"{name}.yaml").write_text(PIPE.format(name=name, path=path))


async def test_a_topic_that_takes_too_little_is_told_with_its_remedy(kafka: str, stream: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    await admin.create_topics(
        [NewTopic(Topics(stream).raw, 2, 1, topic_configs={"max.message.bytes": "1000000"})]
    )
    await admin.close()
    with pytest.raises(
        Misconfigured, match=r"allows records of 1000000 bytes .* --add-config max.message.bytes="
    ):
        await set_up(settings(kafka, stream, partitions=2))


async def test_topics_and_pipes_are_there_and_repeating_it_changes_nothing(
    kafka: str, stream: str, tmp_path: Path
) -> None:
    write(tmp_path, "one")
    job_settings = settings(kafka, stream, partitions=2, pipes_folder=tmp_path)
    await set_up(job_settings)
    first_registry = await read_registry(kafka, Topics(stream))
    assert first_registry.partitions == 2
    assert set(first_registry.pipes) == {"one"}
    await set_up(job_settings)
    assert await read_registry(kafka, Topics(stream)) == first_registry


async def test_the_control_plane_is_set_up_on_its_own_kafka(kafka: str, stream: str, tmp_path: Path) -> None:
    token_file, control = tmp_path / "token", ControlTopics(f"{stream}-control")
    token_file.write_text("t" * 32)
    async with KafkaCluster(tmp_path / "kafka") as cluster:
        control_settings = {"control": control.control, "control_kafka": cluster.bootstrap}
        await set_up(settings(kafka, stream, control_token_file=token_file, **control_settings))
        counts = await partition_counts(cluster.bootstrap, [topic.name for topic in control.all()])
        assert set(counts.values()) == {1}
        assert "admin" in (await read_principals(cluster.bootstrap, control)).by_name
    assert not await partition_counts(kafka, [control.declared, control.principals])


async def test_a_pipe_is_published_with_what_follows_from_the_rest_of_it(kafka: str, stream: str) -> None:
    """Columns that a change leaves out stay as they are, and would become null otherwise."""
    database = {"host": "db", "name": "shop", "user": "hifi", "password_file": "/etc/hifi/shop"}
    source: dict[str, Any] = {
        "kind": "debezium",
        "connect": "http://connect:8083",
        "bootstrap": kafka,
        "topic": "changes",
    }
    source |= {"database": database, "tables": ["public.rows"]}
    columns: dict[str, Any] = {"columns": {"id": "id"}, "key": ["id"]}
    destination = {
        "name": "d",
        "kind": "postgres",
        "settings": {"url": {"env": "URL"}, "table": "t", **columns},
    }
    declared_pipe = Pipe.model_validate({"pipe": "rows", "source": source, "destinations": [destination]})
    await set_up(settings(kafka, stream, partitions=2))
    await put_in_force(kafka, Topics(stream), [declared_pipe])
    [published] = (await read_registry(kafka, Topics(stream))).pipes["rows"].pipe.destinations
    assert isinstance(published, ConnectorDestination)
    assert published.settings["absent"] == "keep"
    assert await put_in_force(kafka, Topics(stream), [declared_pipe]) == {"rows": "unchanged"}


async def test_a_wrong_pipe_changes_nothing_at_all(kafka: str, stream: str, tmp_path: Path) -> None:
    write(tmp_path, "one")
    await set_up(settings(kafka, stream, partitions=1, pipes_folder=tmp_path))
    registry_before = await read_registry(kafka, Topics(stream))
    write(tmp_path, "one", "changed")
    (tmp_path / "two.yaml").write_text("pipe: two\n")
    with pytest.raises(Misconfigured, match=r"two\.yaml:1:"):
        await set_up(settings(kafka, stream, pipes_folder=tmp_path))
    assert await read_registry(kafka, Topics(stream)) == registry_before


async def test_a_table_without_types_is_refused_before_anything_is_published(
    kafka: str, stream: str, tmp_path: Path
) -> None:
    pipe = PIPE.format(name="lake", path="a").replace("url:", "kind: iceberg, settings:")
    pipe = pipe.replace('"http://127.0.0.1:9/a"', "{warehouse: /lake, table: a.b}")
    (tmp_path / "lake.yaml").write_text(pipe)
    with pytest.raises(Misconfigured, match="lake/d: a table needs types"):
        await set_up(settings(kafka, stream, partitions=2, pipes_folder=tmp_path))
    assert (await read_registry(kafka, Topics(stream))).pipes == {}


async def test_pipes_that_the_folder_lost_are_deleted_only_where_asked(
    kafka: str, stream: str, tmp_path: Path
) -> None:
    write(tmp_path, "one")
    write(tmp_path, "two")
    await set_up(settings(kafka, stream, partitions=1, pipes_folder=tmp_path))
    (tmp_path / "two.yaml").unlink()
    await set_up(settings(kafka, stream, pipes_folder=tmp_path))
    assert set((await read_registry(kafka, Topics(stream))).pipes) == {"one", "two"}
    await set_up(settings(kafka, stream, pipes_folder=tmp_path, delete_missing=True))
    assert set((await read_registry(kafka, Topics(stream))).pipes) == {"one"}


async def test_another_partition_count_is_refused(kafka: str, stream: str) -> None:
    await set_up(settings(kafka, stream, partitions=1))
    with pytest.raises(Misconfigured, match="partitions"):
        await set_up(settings(kafka, stream, partitions=3))


async def test_a_colour_is_refused_with_a_pipe_that_would_lose_events_of_the_other_one(
    kafka: str, stream: str, tmp_path: Path
) -> None:
    write(tmp_path, "one")
    blue = settings(kafka, stream, partitions=1, pipes_folder=tmp_path, colour="blue")
    await set_up(blue)
    registry_before = await read_registry(kafka, Topics(stream))
    assert registry_before.coloured
    assert set(registry_before.pipes) == {"one"}
    rows = "{name: d, kind: iceberg, settings: {warehouse: /tmp/rows, table: a.b, mode: upsert, key: [a], "
    rows += "columns: {a: int}}}"
    (tmp_path / "two.yaml").write_text(
        f"pipe: two\nsource: {{keys: [{{env: KEY_two}}]}}\ndestinations: [{rows}]\n"
    )
    # Also when the variable is missing: the stream was set up as a colour.
    for job_settings in (blue, settings(kafka, stream, pipes_folder=tmp_path)):
        with pytest.raises(Misconfigured, match=r"two/d: with .mode: upsert. two services lake"):
            await set_up(job_settings)
    assert await read_registry(kafka, Topics(stream)) == registry_before


async def test_a_stream_with_such_a_pipe_does_not_become_a_colour(
    kafka: str, stream: str, tmp_path: Path
) -> None:
    (tmp_path / "two.yaml").write_text(
        "pipe: two\nsource: {keys: [{env: KEY_two}]}\n"
        "destinations: [{name: d, kind: iceberg, settings: {warehouse: /tmp/rows, table: a.b, mode: upsert, "
        "key: [a], columns: {a: int}}}]\n"
    )
    await set_up(settings(kafka, stream, partitions=1, pipes_folder=tmp_path))
    registry_before = await read_registry(kafka, Topics(stream))
    with pytest.raises(Misconfigured, match=r"two/d: with .mode: upsert. two services lake"):
        await set_up(settings(kafka, stream, colour="green"))
    assert await read_registry(kafka, Topics(stream)) == registry_before
    assert not registry_before.coloured


async def test_an_absent_kafka_and_too_few_brokers_are_told_in_time(kafka: str, stream: str) -> None:
    with pytest.raises(Retryable, match="does not answer"):
        await set_up(settings(f"127.0.0.1:{free_port()}", stream, wait_s=0.5))
    with pytest.raises(Retryable, match="1 of 99 brokers"):
        await set_up(settings(kafka, stream, brokers=99, wait_s=0.5))


async def test_a_kafka_that_goes_away_is_asked_again(stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_setup, "ANSWER_S", 1.0)
    with pytest.raises(Retryable, match="did not answer as expected"):
        await prepare(f"127.0.0.1:{free_port()}", Topics(stream), 2)


async def test_the_first_administrator_has_the_given_token_and_stays_revoked(
    kafka: str, stream: str, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("hifi_" + "t" * 43 + "\n")
    control = ControlTopics(f"{stream}-control")
    job_settings = settings(kafka, stream, partitions=1, control=control.control, control_token_file=token)
    await set_up(job_settings)
    await set_up(job_settings)
    assert {
        name: principal.token_sha256
        for name, principal in (await read_principals(kafka, control)).by_name.items()
    } == {"admin": token_sha256("hifi_" + "t" * 43)}
    await revoke_principal(kafka, control, "admin", author="test", at_us=now_us())
    await set_up(job_settings)
    assert (await read_principals(kafka, control)).by_name == {}


async def test_with_a_control_plane_only_pipes_that_it_has_not_decided_about_are_published(
    kafka: str, stream: str, tmp_path: Path
) -> None:
    """A pipe that was deleted through the control plane does not come back from the folder."""
    control = ControlTopics(f"{stream}-control")
    job_settings = settings(kafka, stream, partitions=1, pipes_folder=tmp_path, control=control.control)
    write(tmp_path, "one")
    await set_up(job_settings)
    first_registry = await read_registry(kafka, Topics(stream))
    write(tmp_path, "one", "changed")
    write(tmp_path, "two")
    write(tmp_path, "deleted")
    deletion = Declaration("deleted", None, "ann", now_us())
    await write_records(kafka, "test", (control.declared, [deletion.record()]))
    await set_up(job_settings)
    second_registry = await read_registry(kafka, Topics(stream))
    assert second_registry.pipes["one"] == first_registry.pipes["one"]
    assert set(second_registry.pipes) == {"one", "two"}


async def test_a_colour_gets_its_pipes_before_another_job_has_made_the_topics_of_the_control_plane(
    kafka: str, stream: str, tmp_path: Path
) -> None:
    write(tmp_path, "one")
    colour_settings = {"colour": "blue", "control": f"{stream}-blue"}
    await set_up(settings(kafka, stream, partitions=1, pipes_folder=tmp_path, **colour_settings))
    assert set((await read_registry(kafka, Topics(stream))).pipes) == {"one"}


async def test_a_token_that_is_too_short_is_refused(kafka: str, stream: str, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("short\n")
    job_settings = settings(
        kafka, stream, partitions=1, control=f"{stream}-control", control_token_file=token
    )
    with pytest.raises(Misconfigured, match=r"HIFI_CONTROL_TOKEN_FILE: .* has 5 characters"):
        await set_up(job_settings)
