"""Shared by the tests of ingest and normalize: a new stream, reading its topics, and a service as a process."""

import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
from aiokafka import AIOKafkaConsumer, ConsumerRecord, TopicPartition

from hifi.kafka.admin import create_topics
from hifi.kafka.topics import Topics
from hifi.pipe.registry import publish, stream_record

PARTITIONS = 4


async def create_stream(kafka: str) -> str:
    """Create the topics of a new stream without pipes, and return its name."""
    name = f"t{uuid.uuid4().hex[:10]}"
    await create_topics(kafka, Topics(name), partitions=PARTITIONS, replication=1)
    await publish(kafka, Topics(name), [stream_record(PARTITIONS)])
    return name


async def read_all(kafka: str, topic: str) -> list[ConsumerRecord]:
    """All records of a topic, by partition and offset."""
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    await consumer.start()
    try:
        partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(partitions)
        end_offsets = await consumer.end_offsets(partitions)
        read_records: list[ConsumerRecord] = []
        for tp in partitions:
            while await consumer.position(tp) < end_offsets[tp]:
                for records in (await consumer.getmany(tp, timeout_ms=500)).values():
                    read_records += records
        return read_records
    finally:
        await consumer.stop()


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def start_service(
    program: str, kafka: str, stream: str, admin: int, log: Path, **settings: object
) -> subprocess.Popen[bytes]:
    """Start a service of a stream; its health pages are on the port `admin`."""
    return start_program(
        [str(Path(sys.executable).with_name(program))], kafka, stream, admin, log, **settings
    )


def start_program(
    arguments: Sequence[str], kafka: str, stream: str, admin: int, log: Path, **settings: object
) -> subprocess.Popen[bytes]:
    """Start a program with the settings of a service, see `start_service`."""
    names = {"kafka": kafka, "stream": stream, "port": admin, "log_format": "json", **settings}
    env = os.environ | {f"HIFI_{name.upper()}": str(value) for name, value in names.items()}
    with log.open("ab") as output:
        return subprocess.Popen(list(arguments), env=env, stdout=output, stderr=output)


def readyz(admin: int) -> tuple[int, dict[str, Any]]:
    """Status and body of a service's /readyz; (0, {}) while it does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{admin}/readyz", timeout=2) as answer:
            return answer.status, orjson.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, orjson.loads(error.read())
    except OSError:
        return 0, {}
