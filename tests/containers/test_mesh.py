"""The whole mesh with compose: accepted events arrive once while containers are killed, scaled and replaced.

The tests use one mesh, in order. What processes show as well has the marker `more`: here one service stands for
Docker's restart policy.
"""

import asyncio
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import aiohttp
import pytest
from tests.support.containers.stack import (
    DATA_PLANE,
    ComposeMesh,
    SteadySender,
    all_arrived_once,
    inspect,
    run,
    until,
)

PYTHON = ("/opt/hifi/bin/python", "-c")
FETCH = "import sys, urllib.request as r; print(r.urlopen(f'http://127.0.0.1:9000/{sys.argv[1]}').read().decode())"
PROCESSES = """
import glob
for file in glob.glob("/proc/[0-9]*/cmdline") + glob.glob("/proc/[0-9]*/environ"):
    try:
        print(open(file, "rb").read().replace(b"\\0", b" ").decode(errors="replace"))
    except OSError:
        pass
"""
SEARCH = """
import pathlib, sys
for path in pathlib.Path("/var/lib/kafka").rglob("*"):
    content = path.read_bytes() if path.is_file() else b""
    for text in sys.argv[1:]:
        if text.encode() in content:
            print(text, path)
"""
TOPICS = """
import asyncio, sys
from aiokafka import AIOKafkaConsumer, TopicPartition
from hifi.kafka.admin import partition_counts
from hifi.kafka.security import client_options

async def main():
    consumer = AIOKafkaConsumer(**client_options("kafka:9092"))
    await consumer.start()
    counts = await partition_counts("kafka:9092", sorted(await consumer.topics()))
    partitions = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
    consumer.assign(partitions)
    await consumer.seek_to_beginning()
    ends = await consumer.end_offsets(partitions)
    found = set()
    while any([await consumer.position(each) < ends[each] for each in partitions]):
        for each, records in (await consumer.getmany(timeout_ms=200)).items():
            for one in records:
                parts = [one.key or b"", one.value or b"", *(value for _, value in one.headers)]
                found |= {(text, each.topic) for text in sys.argv[1:] if any(text.encode() in part for part in parts)}
    await consumer.stop()
    for text, topic in sorted(found):
        print(text, topic)

asyncio.run(main())
"""
MakeSender = Callable[[ComposeMesh], SteadySender]


@pytest.fixture(scope="module")
def mesh(make_mesh: Callable[..., ComposeMesh]) -> ComposeMesh:
    mesh = make_mesh("mesh", control="hifi-control")
    began_s = time.monotonic()
    mesh.up()
    print(f"up and ready after {time.monotonic() - began_s:.0f} s")
    return mesh


def on_disk(mesh: ComposeMesh, *texts: str) -> set[tuple[str, str]]:
    """The texts that are in files of the broker, with the file; records of enrich are compressed."""
    lines = run(
        "docker", "exec", mesh.containers("kafka")[0], "python3", "-c", SEARCH, *texts
    ).stdout.splitlines()
    return {(text, file) for text, _, file in (line.rpartition(" ") for line in lines)}


def in_records(mesh: ComposeMesh, *texts: str) -> set[tuple[str, str]]:
    """The texts that are in records of a topic, with the topic."""
    command = (
        "run",
        "--rm",
        "--no-deps",
        "-T",
        "--entrypoint",
        "/opt/hifi/bin/python",
        "setup",
        "-c",
        TOPICS,
    )
    lines = mesh.compose(*command, *texts).stdout.splitlines()
    return {(text, topic) for text, _, topic in (line.rpartition(" ") for line in lines)}


async def in_thread(*steps: Callable[[], object]) -> None:
    """Run compose commands one after another while the sender sends."""
    for step in steps:
        await asyncio.to_thread(step)
        await asyncio.sleep(3)


async def test_every_event_arrives_exactly_once(mesh: ComposeMesh, sender: MakeSender) -> None:
    event_sender = sender(mesh)
    await event_sender.send(10)
    all_arrived_once(mesh, event_sender)


async def test_no_secret_and_no_masked_value_is_in_anything_that_the_mesh_wrote(
    mesh: ComposeMesh, secrets: Path
) -> None:
    """Canaries are all secrets, and a masked field of an event that is delivered and of one that is a dead letter."""
    email = "canary-4711@example.com"
    good_event = {"id": "canary-good", "customer": "canary-customer", "amount": 1.5, "email": email}
    bad_event = good_event | {"id": "canary-bad", "amount": "much"}
    key = (secrets / "write_key").read_text().strip()
    url = f"http://127.0.0.1:{mesh.env['HIFI_PUBLIC_PORT']}/v1/pipes/orders/events"
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as session:
        for event in (good_event, bad_event):
            async with session.post(url, json=event) as answer:
                assert answer.status == 202, await answer.text()
    until(lambda: "canary-good" in mesh.arrivals(), "the good event is delivered")
    until(
        lambda: any("dead-letter" in file for _, file in on_disk(mesh, "canary-bad")),
        "the bad one is a dead letter",
    )
    hidden = {path.name: path.read_text().strip() for path in secrets.rglob("*") if path.is_file()}
    assert hidden.pop("oidc_client_secret") == "", "there is no provider in this mesh"
    hidden = {name: text.splitlines()[1] if "PRIVATE" in text else text for name, text in hidden.items()}
    del hidden["ca.pem"], hidden["report_key.pub"]
    canaries = {**hidden, "the masked field": email}
    assert on_disk(mesh, *canaries.values()) == set()
    found_canaries = in_records(mesh, "canary-customer", *canaries.values())
    assert {topic for text, topic in found_canaries if text == "canary-customer"} >= {
        "hifi.raw",
        "hifi.enriched",
    }
    assert {text for text, _ in found_canaries} == {"canary-customer"}
    outputs = {"logs": mesh.compose("logs", "--no-color").stdout}
    for service in DATA_PLANE:
        container = mesh.containers(service)[0]
        for page in ("metrics", "readyz", "healthz"):
            outputs[f"{service}/{page}"] = run("docker", "exec", container, *PYTHON, FETCH, page).stdout
    for service in ("kafka", *DATA_PLANE):
        processes = run("docker", "exec", mesh.containers(service)[0], "python3", "-c", PROCESSES).stdout
        outputs[f"{service}: processes"] = processes
    console = f"http://127.0.0.1:{mesh.env['HIFI_CONSOLE_PORT']}"
    token = (secrets / "manage_token").read_text().strip()
    async with aiohttp.ClientSession(headers={"authorization": f"Bearer {token}"}) as session:
        for page in (
            "/",
            "/pipes/orders",
            "/api/v1/pipes",
            "/api/v1/pipes/orders/dead",
            "/api/v1/status",
        ):
            async with session.get(console + page) as answer:
                assert answer.status == 200, page
                outputs[f"console {page}"] = await answer.text()
    assert [name for name, text in outputs.items() if len(text) < 20] == []
    assert [
        (name, output_name)
        for name, value in canaries.items()
        for output_name, text in outputs.items()
        if value in text
    ] == []


def test_kafka_refuses_plaintext_and_a_service_what_is_not_its_own(mesh: ComposeMesh) -> None:
    script = """
import asyncio, os
from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaConnectionError, TopicAuthorizationFailedError
from hifi.kafka.security import client_options

async def refused(error, **options):
    producer = AIOKafkaProducer(**options, request_timeout_ms=5000)
    try:
        await producer.start()
        await producer.send_and_wait("hifi.raw", b"{}")
    except error as told:
        print("refused:", type(told).__name__)
    finally:
        await producer.stop()

async def main():
    await refused(KafkaConnectionError, bootstrap_servers="kafka:9092")
    await refused(TopicAuthorizationFailedError, **client_options("kafka:9092"))

asyncio.run(main())
"""
    completed = run("docker", "exec", mesh.containers("retrier")[0], "/opt/hifi/bin/python", "-c", script)
    assert completed.stdout == "refused: KafkaConnectionError\nrefused: TopicAuthorizationFailedError\n"


@pytest.mark.more
async def test_up_again_changes_nothing(mesh: ComposeMesh, sender: MakeSender) -> None:
    containers_before = {
        service: mesh.containers(service) for service in ("kafka", "ingest", "enrich", "egest")
    }
    mesh.up()
    assert {service: mesh.containers(service) for service in containers_before} == containers_before
    event_sender = sender(mesh)
    await event_sender.send(2)
    all_arrived_once(mesh, event_sender)


@pytest.mark.more  # faster: test_the_executor_adds_and_removes_a_container_under_load
async def test_scaling_up_and_down_under_load_loses_and_repeats_nothing(
    mesh: ComposeMesh, sender: MakeSender
) -> None:
    def scale(normalize: int, egest: int) -> Callable[[], None]:
        return lambda: mesh.up(
            "--no-recreate", "--scale", f"normalize={normalize}", "--scale", f"egest={egest}"
        )

    event_sender = sender(mesh)
    await event_sender.send_while(in_thread(scale(3, 1), scale(3, 2), scale(1, 2), scale(1, 1)))
    all_arrived_once(mesh, event_sender)


async def test_ingest_scales_over_a_range_of_ports(mesh: ComposeMesh, sender: MakeSender) -> None:
    first_port = int(mesh.env["HIFI_PUBLIC_PORT"])
    mesh.up(
        "--no-recreate", "--scale", "ingest=2", env={"HIFI_PUBLIC_PORT": f"{first_port}-{first_port + 20}"}
    )
    published = [mesh.compose("port", "--index", str(index), "ingest", "8080").stdout for index in (1, 2)]
    urls = [f"http://{address.strip()}" for address in published]
    assert urls[0] == f"http://127.0.0.1:{first_port}" != urls[1]
    senders = [sender(mesh), sender(mesh)]
    for number, (event_sender, url) in enumerate(zip(senders, urls, strict=True)):
        event_sender.url, event_sender.name = url, f"{event_sender.name}-{number}"
        await event_sender.send(2)
    mesh.up("--no-recreate", "--scale", "ingest=1")
    for event_sender in senders:
        all_arrived_once(mesh, event_sender)


async def test_the_executor_adds_and_removes_a_container_under_load(
    mesh: ComposeMesh, sender: MakeSender
) -> None:
    def change(count: int) -> Callable[[], None]:
        def make() -> None:
            instances = [
                instance for instance in mesh.executor("egest", str(count)) if instance["service"] == "egest"
            ]
            assert len(instances) == len(mesh.containers("egest")) == count
            until(lambda: mesh.health("egest") == ["healthy"] * count, "every egest is ready")

        return make

    event_sender = sender(mesh)
    await event_sender.send_while(in_thread(change(2), change(1)))
    all_arrived_once(mesh, event_sender)


@pytest.mark.more  # without containers: tests of the assignor and the consumer
async def test_more_instances_than_partitions_are_ready_all_the_same(mesh: ComposeMesh) -> None:
    mesh.up("--no-recreate", "--scale", "retrier=6")
    assert mesh.health("retrier") == ["healthy"] * 6
    mesh.up("--no-recreate", "--scale", "retrier=1")


@pytest.mark.more  # faster: the kill of egest below; without containers: `make chaos-quick`
@pytest.mark.parametrize("service", ["enrich", "normalize", "retrier"])
async def test_a_killed_container_loses_and_repeats_nothing(
    mesh: ComposeMesh, sender: MakeSender, service: str
) -> None:
    event_sender = sender(mesh)
    await event_sender.send_while(in_thread(lambda: time.sleep(3), lambda: mesh.crash(service)))
    all_arrived_once(mesh, event_sender)


async def test_a_killed_egest_repeats_at_most_what_it_was_sending(
    mesh: ComposeMesh, sender: MakeSender
) -> None:
    event_sender = sender(mesh)
    await event_sender.send_while(in_thread(lambda: time.sleep(3), lambda: mesh.crash("egest")))
    all_arrived_once(mesh, event_sender, repeats=32)  # the pipe's concurrency


@pytest.mark.more  # without containers: `make chaos-quick` kills ingest
async def test_a_killed_ingest_keeps_what_it_accepted(mesh: ComposeMesh, sender: MakeSender) -> None:
    event_sender = sender(mesh)
    await event_sender.send_while(
        in_thread(lambda: time.sleep(3), lambda: mesh.crash("ingest"), lambda: time.sleep(5))
    )
    all_arrived_once(mesh, event_sender)


@pytest.mark.more  # without containers: `make chaos-quick` kills the broker
@pytest.mark.parametrize("action", ["restart", "kill"])
async def test_a_broker_that_comes_back_has_lost_nothing(
    mesh: ComposeMesh, sender: MakeSender, action: str
) -> None:
    def bounce() -> None:
        if action == "restart":
            mesh.compose("restart", "kafka")
        else:
            mesh.crash("kafka")
        until(lambda: mesh.health("kafka") == ["healthy"], "Kafka is healthy again")

    event_sender = sender(mesh)
    await event_sender.send_while(in_thread(lambda: time.sleep(3), bounce, lambda: time.sleep(10)))
    all_arrived_once(mesh, event_sender)


CHANGED = """
FROM hifi-{service}:{tag}
ENV HIFI_COMMIT=changed
"""


@pytest.mark.more  # faster: a crash of one service; without containers: tests of deploy
async def test_a_new_image_rolls_through_under_load_and_loses_and_repeats_nothing(
    mesh: ComposeMesh, sender: MakeSender, tag: str
) -> None:
    steps = (("ingest", "normalize"), ("enrich", "retrier"), ("egest", "observe"))
    services = [service for step in steps for service in step]
    for service in services:
        dockerfile = CHANGED.format(service=service, tag=tag)
        command = ["docker", "build", "--network", "none", "--tag", f"hifi-{service}:changed", "-"]
        subprocess.run(command, input=dockerfile, text=True, check=True, capture_output=True)

    def roll(step: tuple[str, ...]) -> Callable[[], None]:
        return lambda: mesh.up("--no-deps", *step, env={"HIFI_TAG": "changed"})

    event_sender = sender(mesh)
    await event_sender.send_while(in_thread(*(roll(step) for step in steps)))
    all_arrived_once(mesh, event_sender)
    for service in services:
        container = mesh.containers(service)[0]
        page = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9000/healthz').read().decode())"
        assert (
            '"commit":"changed"'
            in run("docker", "exec", container, "/opt/hifi/bin/python", "-c", page).stdout
        )


async def test_the_management_api_answers_with_the_token_and_only_with_it(
    mesh: ComposeMesh, secrets: Path
) -> None:
    assert mesh.health("rollout") == mesh.health("manage") == mesh.health("collect") == ["healthy"]
    pipes = f"http://127.0.0.1:{mesh.env['HIFI_MANAGE_PORT']}/api/v1/pipes"
    token = (secrets / "manage_token").read_text().strip()
    async with aiohttp.ClientSession() as session:
        async with session.get(pipes) as answer:
            assert answer.status == 401
        async with session.get(pipes, headers={"Authorization": f"Bearer {token}"}) as answer:
            assert answer.status == 200, await answer.text()
            assert "orders" in await answer.text()


async def test_everything_stops_within_its_grace_and_nothing_is_killed(
    mesh: ComposeMesh, sender: MakeSender
) -> None:
    event_sender = sender(mesh)
    await event_sender.send(3)
    all_arrived_once(mesh, event_sender)
    mesh.compose("stop")
    for service in (*DATA_PLANE, "kafka"):
        for container in mesh.compose("ps", "--all", "--quiet", service).stdout.split():
            assert inspect(container, "{{.State.ExitCode}} {{.State.OOMKilled}}") in {
                "0 false",
                "143 false",
            }, service
