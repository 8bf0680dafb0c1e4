"""Runs egest or collect on a stream whose topic `pipes` has the hostile pipes of `test_hostile_pipes`.

    python -m tests.support.programs.hostile_services egest|collect KAFKA FOLDER

A writer of the topic has put them there: no check of the publisher saw them. It tries to open FOLDER/mark-1 before
they are published, FOLDER/mark-2 when egest has an outcome for an event of each, or collect has tried to read each
source, and FOLDER/mark-3 after one planted escape of each kind.
"""

import asyncio
import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import certifi
from cryptography.hazmat.backends import default_backend
from pydantic import ValidationError
from tests.libs.check.test_hostile_pipes import DESTINATIONS, HOSTILE, ROWS, SOURCES, Row, _declared
from tests.support.egest.egest_stream import EgestStream, texts
from tests.support.programs.hostile_evaluation import leave_mark

from hifi.pipe.model import Pipe
from hifi.pipe.reader import reader
from hifi.pipe.revision import deletion_record
from hifi.record.headers import PIPE
from hifi.record.record import Record
from hifi.runtime.service import Service
from hifi_collect.__main__ import collect
from hifi_collect.settings import CollectSettings
from hifi_egest.__main__ import egest
from hifi_egest.settings import EgestSettings

WITHIN_S: Final = 400
OWN_FOLDERS: Final = ("run", "objects", "sources")
"""Of the operator, who lets pipes name them; in the folder that is given."""
FILES: Final = ("run/secrets/p", "run/secrets/r", "run/secrets/d", "sources/a/a.csv")
SECRETS: Final = ("S", "P", "O", "A", "B")
TEXTS: Final[Mapping[str, Sequence[str]]] = {
    "destinations": [
        *("private host", "private URL", "private server", "metadata URL", "IPv4 in IPv6"),
        *("name that is bound again", "${…}", "file:", "path traversal"),
    ],
    "source": ["private host", "private URL", "private server", "metadata URL", "file:", "path traversal"],
}
"""Part of a pipe to those of the hostile texts that name something to reach."""
AT_ONCE: Final = 60
"""Pipes that are published together."""


def hostile_pipes(section: str, folder: Path) -> dict[str, bytes]:
    """Name to the JSON of each pipe with a hostile text in its source or its destination; and of one of each kind."""
    rows = [
        row for rows in ROWS.values() for row in rows if row.declaration == "pipe" and row.path[0] == section
    ]
    declared = [
        _declared(row, text)["pipe"] for row in rows for text in map(HOSTILE.__getitem__, TEXTS[section])
    ]
    declared += [_declared(Row(("description",), source=source), "x")["pipe"] for source in SOURCES]
    declared += [
        _declared(Row(("description",), destination=destination), "x")["pipe"] for destination in DESTINATIONS
    ]
    pipes = {}
    for number, pipe in enumerate(declared):
        pipe["pipe"] = f"p{number}"
        if section == "destinations":
            pipe["destinations"][0].setdefault("name", "d")
        text = json.dumps(pipe)
        for name in OWN_FOLDERS:
            text = text.replace(f'"/{name}/', f'"{folder}/{name}/')
        pipes[f"p{number}"] = text.encode()
    return pipes


def accepted(pipes: dict[str, bytes]) -> dict[str, Pipe]:
    """Those that a service can read; the topic's readers leave out the others."""
    accepted_pipes: dict[str, Pipe] = {}
    for name, pipe in pipes.items():
        with contextlib.suppress(ValidationError):
            accepted_pipes[name] = Pipe.model_validate_json(pipe)
    return accepted_pipes


@contextlib.asynccontextmanager
async def running(service_run: Coroutine[Any, Any, None], service: Service) -> AsyncIterator[None]:
    """A service while the block runs."""
    task = asyncio.create_task(service_run)
    await asyncio.sleep(0)  # it blocks readiness before its first await
    try:
        await until(lambda: service.health.ready or task.done())
        yield
    finally:
        service.stop()
        await task


async def until(condition: Callable[[], bool]) -> None:
    """Poll a condition."""
    async with asyncio.timeout(WITHIN_S):
        while not condition():
            await asyncio.sleep(0.1)


async def write_pipes(stream: EgestStream, records: Sequence[Record]) -> None:
    """Write records to the topic of pipes."""
    await stream.producer.send_and_wait(stream.topics.pipes, 0, records)
    stream.version += len(records)


async def publish_raw(stream: EgestStream, pipes: dict[str, bytes]) -> None:
    """Write pipes to the topic as they are."""
    await write_pipes(
        stream, [Record(name.encode(), b'{"pipe":%s}' % pipe, []) for name, pipe in pipes.items()]
    )


async def deliver(stream: EgestStream, pipes: dict[str, bytes]) -> None:
    """Have egest deliver an event of each pipe."""
    topics = stream.topics
    outcomes = [topics.receipts, topics.dead_letter, topics.parked, *map(topics.retry_in, topics.tiers)]
    destinations = {name: pipe.destinations[0] for name, pipe in accepted(pipes).items()}
    egest_destinations = {
        name: destination for name, destination in destinations.items() if reader(destination) == "egest"
    }
    await stream.enriched(
        *(stream.record(destination.name, pipe=name) for name, destination in egest_destinations.items())
    )
    undelivered = set(egest_destinations)
    while undelivered:
        for topic in outcomes:
            undelivered -= {texts(record)[PIPE] for record in await stream.read(topic)}
        await asyncio.sleep(0.5)


NOT_COLLECTED = ("http", "step")
"""Kinds of sources that other services read."""


async def read_sources(stream: EgestStream, service: Service, pipes: dict[str, bytes]) -> None:
    """Have collect read the source of each pipe: it has a warning, or an event.

    A pattern that matches no path gives neither; those pipes are read beside the others.
    """
    sources = {name: pipe.source for name, pipe in accepted(pipes).items()}
    unread_pipes = {
        name
        for name, source in sources.items()
        if source.kind not in NOT_COLLECTED and getattr(source, "pattern", None) not in HOSTILE.values()
    }
    while unread_pipes:
        for subject in service.health.warnings:
            unread_pipes.discard(subject.removeprefix("source of ").partition(":")[0])
        unread_pipes -= {texts(record)[PIPE] for record in await stream.read(stream.topics.raw)}
        await asyncio.sleep(0.5)


def plant() -> None:
    """Do what no pipe may."""
    Path("/etc/passwd").open().close()
    subprocess.run(["/bin/true"], check=True)
    with contextlib.suppress(OSError), socket.socket() as client:  # nobody listens
        client.connect(("127.0.0.1", 9))
    with socket.socket(type=socket.SOCK_DGRAM) as client:
        client.sendto(b"x", ("127.0.0.1", 9))
    with contextlib.suppress(OSError):  # neither exists
        Path("/etc/hifi-planted").rename("/etc/hifi-planted-elsewhere")
    Path("/etc/hifi-planted").unlink(missing_ok=True)


async def main(program: str, kafka: str, folder: Path) -> None:
    """Create a stream, and run the program on it."""
    for name in FILES:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("a,b\n1,2\n")
    (folder / "objects").mkdir()
    for name in SECRETS:
        os.environ[name] = "x"
    authorities = Path(certifi.where()).read_text()
    end = "-----END CERTIFICATE-----\n"
    os.environ["C"] = authorities[authorities.index("-----BEGIN") : authorities.index(end)] + end
    os.environ["DB"] = "postgresql://u:p@10.0.0.1/shop"
    os.environ["HIFI_PIPES_SECRET_FOLDERS"] = str(folder / "run/secrets")
    os.environ["HIFI_PIPES_OBJECT_FOLDERS"] = str(folder / "objects")
    os.environ["HIFI_PIPES_SOURCE_FOLDERS"] = str(folder / "sources")
    stream = EgestStream(kafka, 1)
    await stream.create()
    names: dict[str, Any] = {"kafka": kafka, "stream": stream.topics.stream, "instance": program}
    service: Service
    if program == "egest":
        delivering = EgestSettings(**names, tiers=stream.topics.tiers)
        service = Service(program, delivering)
        service_run, section = egest(service, delivering), "destinations"
    else:
        collect_settings = CollectSettings(**names)
        service = Service(program, collect_settings)
        service_run, section = collect(service, collect_settings), "source"
    async with running(service_run, service), asyncio.timeout(WITHIN_S):
        leave_mark(folder, 1)
        remaining_pipes = iter(hostile_pipes(section, folder).items())
        while pipes := dict(itertools.islice(remaining_pipes, AT_ONCE)):
            await publish_raw(stream, pipes)
            if section == "source":
                await read_sources(stream, service, pipes)
            else:
                await deliver(stream, pipes)
            await write_pipes(stream, [deletion_record(name) for name in pipes])
        leave_mark(folder, 2)
        await asyncio.to_thread(plant)
        leave_mark(folder, 3)
    await stream.producer.stop()


if __name__ == "__main__":
    default_backend()  # OpenSSL reads its configuration once
    asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
