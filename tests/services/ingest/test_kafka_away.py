"""While Kafka is slow or unavailable, ingest answers 503 within about a second with the outcome of each event."""

import asyncio
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest
from tests.support.ingest.ingest_harness import KEY, Ingest, Stream, ingest, new_stream, pipe, wait_until

from hifi.pipe.registry import publish, stream_record
from hifi.record.fields import fields
from hifi_infra.kafka.cluster import KafkaCluster

BEARER = {"authorization": f"Bearer {KEY}"}
PLAIN = "/v1/pipes/flights/events"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaCluster]:
    """A cluster whose broker can be paused."""
    with asyncio.Runner() as runner:
        kafka_cluster = KafkaCluster(tmp_path_factory.mktemp("kafka"))
        runner.run(kafka_cluster.start())
        yield kafka_cluster
        runner.run(kafka_cluster.stop())


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that accepts connections and never sends anything."""
    connections = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    connections.append(server.accept()[0])
                except OSError:
                    return

        threading.Thread(target=accept, daemon=True).start()
        yield "{}:{}".format(*server.getsockname())
    for connection in connections:
        connection.close()


@pytest.fixture
async def client() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(headers=BEARER, connector=aiohttp.TCPConnector(limit=0)) as session:
        yield session


async def post(
    client: aiohttp.ClientSession, instance: Ingest, body: object
) -> tuple[int, Any, float, str | None]:
    """Status, body, seconds, Retry-After."""
    start = time.monotonic()
    async with client.post(instance.url + PLAIN, json=body) as answer:
        return (
            answer.status,
            await answer.json(content_type=None),
            time.monotonic() - start,
            answer.headers.get("retry-after"),
        )


async def test_kafka_that_never_answers_is_503_at_once_and_not_ready(
    silent: str, client: aiohttp.ClientSession, log: Path
) -> None:
    with ingest(silent, "none", log, ready=False) as instance:
        status, _, took_s, retry_after = await post(client, instance, {})
        assert (status, retry_after) == (503, "1")
        assert took_s < 5
        code, body = instance.readyz()
        assert code == 503
        assert "pipes" in body["waiting"]
        assert instance.stop() == 0


async def test_a_stream_that_is_not_created_is_waited_for(
    kafka: str, client: aiohttp.ClientSession, log: Path
) -> None:
    with ingest(kafka, "not-created", log, ready=False) as instance:
        assert (await post(client, instance, {}))[0] == 503
        assert instance.readyz()[0] == 503


async def test_topics_with_another_partition_count_are_refused(
    kafka: str, client: aiohttp.ClientSession, log: Path
) -> None:
    stream = await new_stream(kafka, pipe())
    await publish(kafka, stream.topics, [stream_record(5)])
    with ingest(kafka, stream.name, log, ready=False) as instance:
        wait_until(lambda: "5 partitions" in instance.readyz()[1].get("waiting", {}).get("partitions", ""))
        assert (await post(client, instance, {}))[0] == 503
        assert instance.stop() == 0


async def test_a_frozen_kafka_leaves_unknowns_then_refuses_at_once_and_all_is_well_after(
    cluster: KafkaCluster, client: aiohttp.ClientSession, log: Path
) -> None:
    stream = await new_stream(cluster.bootstrap, pipe())
    with ingest(cluster.bootstrap, stream.name, log) as instance:
        accepted_ids = set((await post(client, instance, [{"n": n} for n in range(50)]))[1]["ids"])
        assert len(accepted_ids) == 50
        cluster.pause_broker(1)
        status, problem, took_s, _ = await post(client, instance, [{"n": n} for n in range(50)])
        assert (status, took_s < 10) == (503, True)
        assert (problem["unknown"], problem["accepted"], problem["refused"]) == (50, 0, 0)
        assert [refusal["index"] for refusal in problem["events"]] == list(range(50))
        answers = await asyncio.gather(*(post(client, instance, {"n": n}) for n in range(300)))
        assert {answer[0] for answer in answers} == {503}
        assert not any("events" in answer[1] for answer in answers), "none of them was accepted"
        # Requests that had waited for Kafka would have the outcome "unknown". The bound is for a machine of any speed.
        assert max(answer[2] for answer in answers) < 30
        wait_until(lambda: instance.readyz()[0] == 503)
        cluster.resume_broker(1)
        wait_until(lambda: instance.readyz()[0] == 200, 40)
        unknown_ids = {refusal["id"] for refusal in problem["events"]}
        async with asyncio.timeout(20):
            while (response := await post(client, instance, {"back": True}))[0] != 202:
                unknown_ids |= {
                    refusal["id"]
                    for refusal in response[1].get("events", ())
                    if refusal["outcome"] == "unknown"
                }
        accepted_ids |= set(response[1]["ids"])
        assert instance.stop() == 0
    await reported_what_it_acknowledged(stream, accepted_ids, unknown_ids)


async def reported_what_it_acknowledged(
    stream: Stream, accepted_ids: set[str], unknown_ids: set[str]
) -> None:
    """Every acknowledged event is on raw, no refused one is, and the reports name exactly the acknowledged ones."""
    raw = [fields(record.headers) | {"partition": record.partition} for record in await stream.raw()]
    ids = {event_fields["ce_id"].decode() for event_fields in raw}
    assert accepted_ids <= ids
    assert ids <= accepted_ids | unknown_ids
    acknowledged_seqs = reported([orjson.loads(record.value) for record in await stream.accepted()])
    assert acknowledged_seqs == {
        event_fields["hifi_seq"].decode()
        for event_fields in raw
        if event_fields["ce_id"].decode() in accepted_ids
    }


def reported(reports: list[dict[str, Any]]) -> set[str]:
    return {
        f"{report['epoch']}:{sequence}"
        for report in reports
        for minutes in report["pipes"].values()
        for ranges in minutes.values()
        for first_sequence, last_sequence in ranges
        for sequence in range(first_sequence, last_sequence + 1)
    }


@pytest.mark.more
async def test_a_full_buffer_is_refused_and_memory_stays_bounded(
    cluster: KafkaCluster, client: aiohttp.ClientSession, log: Path
) -> None:
    stream = await new_stream(cluster.bootstrap, pipe())
    settings: dict[str, Any] = {"ingest_ack_timeout_s": 3, "ingest_buffer_bytes": 2_000_000}
    with ingest(cluster.bootstrap, stream.name, log, **settings) as instance:
        assert (await post(client, instance, {}))[0] == 202
        cluster.pause_broker(1)
        try:
            answers = await asyncio.gather(
                *(post(client, instance, {"n": n, "pad": "x" * 500_000}) for n in range(40))
            )
        finally:
            cluster.resume_broker(1)
        assert {answer[0] for answer in answers} == {503}
        refusals = [
            answer for answer in answers if "buffer of events for Kafka is full" in answer[1]["detail"]
        ]
        assert len(refusals) >= 30
        assert max(answer[2] for answer in refusals) < 2
        assert sum(answer[1].get("unknown", 0) for answer in answers) <= 4
        wait_until(lambda: instance.readyz()[0] == 200, 40)
        assert instance.stop() == 0


async def test_draining_loses_nothing_that_was_acknowledged_and_closes_the_reports(
    kafka: str, client: aiohttp.ClientSession, log: Path
) -> None:
    stream = await new_stream(kafka, pipe())
    accepted_ids: set[str] = set()
    refused_count = 0
    with ingest(kafka, stream.name, log) as instance:
        enough_accepted = asyncio.Event()

        async def send() -> None:
            nonlocal refused_count
            while True:
                try:
                    status, answer, _, _ = await post(client, instance, [{"n": n} for n in range(20)])
                except aiohttp.ClientError:
                    return
                if status == 202:
                    accepted_ids.update(answer["ids"])
                else:
                    refused_count += 1
                if len(accepted_ids) > 2000:
                    enough_accepted.set()

        senders = [asyncio.create_task(send()) for _ in range(8)]
        await asyncio.wait_for(enough_accepted.wait(), 30)
        instance.process.terminate()
        await asyncio.gather(*senders)
        assert instance.process.wait(20) == 0
    await reported_what_it_acknowledged(stream, accepted_ids, unknown_ids=set())
    reports = [orjson.loads(record.value) for record in await stream.accepted()]
    closed_epochs = {report["epoch"] for report in reports if report["closed"]}
    assert closed_epochs == {report["epoch"] for report in reports}
    assert len(closed_epochs) == 4, "an epoch for each partition"
    answered_requests = sum(number for report in reports for number in report["answers"].values())
    assert answered_requests == len(accepted_ids) // 20 + refused_count


@pytest.mark.more
async def test_two_processes_share_the_port_and_one_may_go(
    kafka: str, client: aiohttp.ClientSession, log: Path, tmp_path: Path
) -> None:
    stream = await new_stream(kafka, pipe())
    with (
        ingest(kafka, stream.name, log) as first_instance,
        ingest(kafka, stream.name, tmp_path / "two", ingest_port=first_instance.port) as second_instance,
    ):
        for _ in range(40):
            async with client.post(
                first_instance.url + PLAIN, json={}, headers={"connection": "close"}
            ) as answer:
                assert answer.status == 202
        assert first_instance.stop() == 0
        for _ in range(10):
            async with client.post(
                second_instance.url + PLAIN, json={}, headers={"connection": "close"}
            ) as answer:
                assert answer.status == 202
        assert second_instance.stop() == 0
    reports = [orjson.loads(record.value) for record in await stream.accepted()]
    assert len({report["epoch"] for report in reports}) == 8
    assert len(reported(reports)) == 50
    assert len({report["epoch"] for report in reports if report["pipes"]}) > 4, "both accepted some"
