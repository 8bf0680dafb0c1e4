"""The registry loads published pipes at start and follows changes in order; invalid records are refused."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import pytest
from tests.support.held_pipes import unreadable_body, unreadable_record
from tests.support.vault_double import VaultDouble, forget_secrets, running_vault

from hifi.kafka.admin import create_topics, partition_counts
from hifi.kafka.topics import Topics
from hifi.pipe import rollout
from hifi.pipe.model import Pipe
from hifi.pipe.registry import PipeRegistry, publish, read_registry, stream_record
from hifi.pipe.revision import NextRevision, body_record, deletion_record, pipe_record
from hifi.record.record import Record
from hifi.runtime.errors import Misconfigured
from hifi.runtime.health import Health
from hifi.runtime.lifetime import Lifetime
from hifi.runtime.running import running
from hifi_http.declaration import HttpDestination
from hifi_infra.kafka.stream_setup import put_in_force


def pipe(name: str, url: str = "http://127.0.0.1:9/") -> Pipe:
    return Pipe.model_validate(
        {
            "pipe": name,
            "source": {"keys": [{"env": f"KEY_{name.upper()}"}]},
            "destinations": [{"name": "there", "url": url}],
        }
    )


@pytest.fixture
async def topics(kafka: str) -> Topics:
    topics = Topics(f"t{uuid.uuid4().hex[:8]}")
    await create_topics(kafka, topics, partitions=3, replication=1)
    return topics


@pytest.fixture
async def registry(kafka: str, topics: Topics) -> AsyncIterator[PipeRegistry]:
    await publish(kafka, topics, [stream_record(3), pipe_record(pipe("old"))])
    registry = PipeRegistry(kafka, topics, Health("test", "test-1"))
    await registry.start()
    yield registry
    await registry.stop()


async def test_topics_are_created_once_with_the_streams_partitions(kafka: str, topics: Topics) -> None:
    assert await create_topics(kafka, topics, partitions=3, replication=1) == []
    counts = await partition_counts(kafka, [topic.name for topic in topics.all()])
    assert counts[topics.raw] == counts[topics.dead_letter] == counts[topics.retry_in(topics.tiers[0])] == 3
    assert counts[topics.pipes] == 1
    with pytest.raises(Misconfigured, match=r"has 3 partitions .* needs 4"):
        await create_topics(kafka, topics, partitions=4, replication=1)


async def test_all_published_pipes_are_loaded_at_start(registry: PipeRegistry) -> None:
    assert (registry.partitions, registry.offset) == (3, 1)
    published = registry.get("old")
    assert published is not None
    assert (published.pipe, published.offset) == (pipe("old"), 1)


async def test_changes_arrive_in_order_and_are_announced(
    kafka: str, topics: Topics, registry: PipeRegistry
) -> None:
    changes: list[int] = []
    registry.on_change(lambda: changes.append(registry.offset))
    await publish(
        kafka,
        topics,
        [pipe_record(pipe("new")), pipe_record(pipe("old", "http://127.0.0.1:10/")), deletion_record("new")],
    )
    assert await registry.wait_for_offset(4, timeout_s=20)
    assert registry.get("new") is None
    destination = registry.all()[0].pipe.destinations[0]
    assert isinstance(destination, HttpDestination)
    assert str(destination.url) == "http://127.0.0.1:10/"
    assert changes[-1] == 4


async def test_an_invalid_record_holds_its_pipe_and_the_old_one_stays_for_what_lists(
    kafka: str, topics: Topics, registry: PipeRegistry
) -> None:
    await publish(
        kafka,
        topics,
        [
            Record(b"old", b"{}", []),
            Record(b"old", b"\xff", []),
            Record(b"old", pipe_record(pipe("other")).value, []),
        ],
    )
    assert await registry.wait_for_offset(4, timeout_s=20)
    published = registry.get("old")
    assert published is not None
    assert published.offset == 1
    assert "the record's key is 'old'" in (registry.held("old") or "")


async def test_waiting_for_an_offset_ends_at_the_timeout(registry: PipeRegistry) -> None:
    assert not await registry.wait_for_offset(99, timeout_s=0.1)


async def test_a_stream_that_was_not_created_keeps_a_service_waiting(kafka: str, topics: Topics) -> None:
    health = Health("test", "test-1")
    registry = PipeRegistry(kafka, topics, health)
    start = asyncio.create_task(registry.start())
    async with asyncio.timeout(20):
        while "not been created" not in health.waiting.get("pipes", ""):
            await asyncio.sleep(0.02)
    await publish(kafka, topics, [stream_record(3)])
    async with asyncio.timeout(20):
        await start
    assert health.ready
    await registry.stop()


async def test_a_start_waits_for_secrets_while_vault_is_sealed_and_then_has_the_pipes(
    kafka: str, topics: Topics, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("a-token")
    forget_secrets()
    health = Health("test", "test-1")
    registry = PipeRegistry(kafka, topics, health, ("source",))
    async with running_vault(VaultDouble(sealed=True)) as vault, asyncio.timeout(30):
        vault.write("keys/new", key="k")
        monkeypatch.setenv("HIFI_VAULT_ADDRESS", vault.url)
        monkeypatch.setenv("HIFI_VAULT_TOKEN_FILE", str(tmp_path / "token"))
        monkeypatch.setenv("HIFI_PIPES_SECRET_GRANTS", "new=vault:keys/new")
        document = pipe("new").model_dump(mode="json", by_alias=True, exclude_defaults=True)
        document["source"] = {"keys": [{"vault": "keys/new#key"}]}
        await publish(kafka, topics, [stream_record(3), pipe_record(Pipe.model_validate(document))])
        start = asyncio.create_task(registry.start())
        while "Vault is sealed" not in health.waiting.get("secrets", ""):
            await asyncio.sleep(0.02)
        assert not start.done()
        vault.sealed = False
        await start
        assert health.ready
        assert [key.digest() for key in registry.all()[0].pipe.source.keys] == [sha256(b"k").hexdigest()]
    await registry.stop()


async def test_a_stream_record_that_cannot_be_read_is_skipped(
    kafka: str, topics: Topics, registry: PipeRegistry
) -> None:
    await publish(
        kafka,
        topics,
        [
            Record(b"__stream__", b"{}", []),
            Record(b"__stream__", None, []),
            Record(b"\xff", b"{}", []),
            pipe_record(pipe("after")),
        ],
    )
    assert await registry.wait_for_offset(5, timeout_s=20)
    assert registry.get("after") is not None
    assert registry.partitions == 3
    assert registry.all_held() == {}, "no pipe has such keys"
    assert (await read_registry(kafka, topics)).pipes.keys() == {"old", "after"}


async def test_a_service_does_not_outlive_its_registry(kafka: str, topics: Topics) -> None:
    await publish(kafka, topics, [stream_record(3)])
    service = Lifetime(Health("test", "test-1"))
    registry = PipeRegistry(kafka, topics, service.health)

    def fail() -> None:
        raise LookupError("a listener that fails")

    registry.on_change(fail)

    async def serve() -> None:
        async with asyncio.timeout(30), running(service, registry):
            await publish(kafka, topics, [pipe_record(pipe("new"))])
            await service.stopping.wait()

    with pytest.raises(LookupError, match="a listener that fails"):
        await serve()


async def test_a_record_of_a_later_release_holds_its_pipe_alone_until_it_can_be_read_or_is_deleted(
    kafka: str, topics: Topics, registry: PipeRegistry
) -> None:
    await publish(kafka, topics, [pipe_record(pipe("new")), unreadable_record(pipe("old"), 2)])
    assert await registry.wait_for_offset(3, timeout_s=20)
    reason = registry.unreadable("old")
    assert reason is not None
    assert "offset 3" in reason
    assert "pipe.slo.newkey" in reason
    assert [registry.unreadable("old", number) for number in (1, 2)] == [reason, reason]
    assert registry.held("old") == reason
    assert registry.unreadable("new") is registry.held("new") is None
    assert [published.pipe.pipe for published in registry.all()] == ["new", "old"], "what only lists has it"
    assert [published.pipe.pipe for published in registry.usable()] == ["new"]
    assert registry.unreadable_keys() == {"old": reason}
    assert registry.content_offset == 3

    snapshot = await read_registry(kafka, topics)
    assert snapshot.held == {"old": reason}
    with pytest.raises(Misconfigured, match=r"old is held: .*newkey.* Nothing was changed\. A later release"):
        rollout.put_at_once(snapshot, pipe("old"))
    with pytest.raises(Misconfigured, match="old is held"):
        rollout.change_pause(snapshot, "old", paused=True)
    await publish(kafka, topics, [pipe_record(pipe("old"), 3, since=3)])
    assert await registry.wait_for_offset(4, timeout_s=20)
    assert registry.all_held() == {}
    assert registry.content_offset == 4
    await publish(kafka, topics, [Record(b"old", b"{", []), deletion_record("old")])
    assert await registry.wait_for_offset(6, timeout_s=20)
    assert registry.get("old") is None
    assert registry.all_held() == {}


async def test_a_pipe_whose_only_record_cannot_be_read_is_held_and_not_absent(
    kafka: str, topics: Topics
) -> None:
    await publish(kafka, topics, [stream_record(3), unreadable_record(pipe("old")), pipe_record(pipe("new"))])
    snapshot = await read_registry(kafka, topics)
    assert snapshot.pipes.keys() == {"new"}
    assert snapshot.held.keys() == {"old"}
    with pytest.raises(Misconfigured, match="old is held"):
        await put_in_force(kafka, topics, [pipe("new", "http://127.0.0.1:10/"), pipe("old")])
    assert (await read_registry(kafka, topics)).offset == 2, "nothing was changed"
    assert await put_in_force(kafka, topics, [pipe("new")], delete_missing=True) == {
        "new": "unchanged",
        "old": "deleted",
    }
    assert await put_in_force(kafka, topics, [pipe("old")]) == {"old": "new"}


async def test_a_next_revision_that_cannot_be_read_holds_what_is_new_and_its_own_events(
    kafka: str, topics: Topics, registry: PipeRegistry
) -> None:
    next_body = unreadable_body(pipe("old"), 2)
    current = pipe_record(pipe("old"), since=1, following=NextRevision(revision=2, share=100))
    await publish(kafka, topics, [next_body, current])
    assert await registry.wait_for_offset(3, timeout_s=20)
    assert "offset 2" in (registry.held("old") or "")
    assert registry.unreadable("old", 1) is None, "events of the current revision go on"
    assert registry.unreadable("old", 2) == registry.held("old")
    assert registry.unreadable_keys().keys() == {"old;2"}
    assert [published.number for published in registry.usable()] == [1]
    snapshot = await read_registry(kafka, topics)
    for transition in (rollout.promote, rollout.abort):
        with pytest.raises(Misconfigured, match="old is held"):
            transition(snapshot, "old")
    assert [record.key for record in rollout.delete(snapshot, "old")] == [b"old", b"old;2"]

    await publish(kafka, topics, [body_record(pipe("old", "http://127.0.0.1:10/"), 2)])
    assert await registry.wait_for_offset(4, timeout_s=20)
    published = registry.get("old")
    assert published is not None
    assert published.rollout is not None
    assert registry.held("old") is None
