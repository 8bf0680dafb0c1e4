"""What the demo needs beside the mesh: the pipe with its lookups, the events, the sender, the destination."""

import asyncio
import os
import secrets
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson

from hifi.errors import Misconfigured, Retryable
from hifi.pipe import loader
from hifi.pipe.model import Pipe
from hifi_cli.demo import flights
from hifi_cli.demo.flights import Row
from hifi_infra.mesh.health_probe import get
from hifi_infra.ports import free_port
from hifi_infra.process.process import Process

PIPE: Final = Path(__file__).with_name("pipe")
"""`examples/flights` of the repository."""
PLACEHOLDER: Final = "http://127.0.0.1:9000"
HERE: Final = Path(__file__).parent
UP_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Stage:
    """The files and processes around the mesh. `data` is the demo's folder."""

    data: Path
    ingest_port: int
    destination_port: int
    mask_key: str = field(default_factory=lambda: secrets.token_hex(16))
    write_key: str = field(default_factory=lambda: secrets.token_hex(16))

    @classmethod
    def at(cls, data: Path) -> "Stage":
        """With free ports."""
        ingest = free_port()
        return cls(data, ingest, free_port(but={ingest}))

    @property
    def secrets(self) -> Mapping[str, str]:
        """Variables in which the pipe's secrets are."""
        return {"FLIGHTS_KEY": self.write_key, "FLIGHTS_MASK": self.mask_key}

    @property
    def sender_books(self) -> Path:
        """See `sender.py`."""
        return self.data / "sender.tsv"

    @property
    def destination_books(self) -> Path:
        """See `destination.py`."""
        return self.data / "destination.books"

    @property
    def events(self) -> Path:
        """What the sender sends, a line each."""
        return self.data / "events.ndjson"

    def pipes(self) -> list[Pipe]:
        """Write the pipe, its schema and lookups into the folder, and read it from there.

        Raises:
            Misconfigured: the pipe is wrong, which should not be.
        """
        folder = self.data / "pipes"
        folder.mkdir(parents=True, exist_ok=True)
        address = f"http://127.0.0.1:{self.destination_port}"
        pipe = (PIPE / "flights.yaml").read_text()
        (folder / "flights.yaml").write_text(pipe.replace(PLACEHOLDER, address))
        (folder / "flights.schema.json").write_bytes((PIPE / "flights.schema.json").read_bytes())
        flights.write_lookups(folder / "lookups")
        loaded, problems = loader.load(folder)
        if problems:
            raise Misconfigured("\n".join(map(str, problems)))
        return [one.pipe for one in loaded]

    def write_events(self, count: int, first: int = 0) -> dict[str, Row]:
        """Write so many events for the sender, from flight number `first` on.

        Returns:
            The flights that they were made of, by id.
        """
        rows = dict(flights.rows(count, first))
        self.write({name: flights.event(name, row) for name, row in rows.items()})
        return rows

    def write(self, events: Mapping[str, Mapping[str, Any]]) -> None:
        """Write these events for the sender, each with the `id` that it has here."""
        with self.events.open("wb") as lines:
            lines.writelines(orjson.dumps(event) + b"\n" for event in events.values())

    def destination(self) -> Process:
        """The destination's process, not started."""
        self.destination_books.unlink(missing_ok=True)
        argv = [
            sys.executable,
            str(HERE / "destination.py"),
            str(self.destination_port),
            str(self.destination_books),
        ]
        return Process("the destination", argv, log=self.data / "logs" / "destination.log")

    def sender(self, rate: float, batch: int = 1) -> Process:
        """The sender's process, not started: `rate` events a second, `batch` in a request."""
        url = f"http://127.0.0.1:{self.ingest_port}/v1/events"
        argv = [
            sys.executable,
            str(HERE / "sender.py"),
            url,
            str(rate),
            str(self.events),
            str(self.sender_books),
            str(batch),
        ]
        env = os.environ | {"KEY": self.write_key}
        return Process("the sender", argv, log=self.data / "logs" / "sender.log", env=env)

    async def counts(self) -> int:
        """Requests that the destination has answered; its books are complete up to there.

        Raises:
            OSError: it does not answer.
        """
        _, body = await get(self.destination_port, "/books")
        return int(orjson.loads(body)["arrivals"])

    async def wait_for_destination(self) -> None:
        """Return once it answers.

        Raises:
            Retryable: it does not in time.
        """
        end = time.monotonic() + UP_S
        while True:
            try:
                await self.counts()
                return
            except OSError:
                if time.monotonic() > end:
                    raise Retryable(
                        f"the destination did not start; its log is in {self.data / 'logs'}"
                    ) from None
                await asyncio.sleep(0.05)
