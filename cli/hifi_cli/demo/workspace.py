"""The files and processes of a load test besides the mesh: pipe, lookups, events, sender and destination."""

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

from hifi.pipe import loader
from hifi.pipe.model import Pipe
from hifi.runtime.errors import Misconfigured, Retryable
from hifi_cli.demo import flights
from hifi_cli.demo.flights import Row
from hifi_cli.demo.sender import CONNECTIONS
from hifi_infra.mesh.health_probe import get
from hifi_infra.ports import free_port
from hifi_infra.process.process import Process

PIPE: Final = Path(__file__).with_name("pipe")
"""`examples/flights` of the repository."""
PLACEHOLDER: Final = "http://127.0.0.1:9000"
HERE: Final = Path(__file__).parent
START_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Workspace:
    """The files and processes of a load test besides the mesh. `data` is its folder."""

    data: Path
    ingest_port: int
    destination_port: int
    mask_key: str = field(default_factory=lambda: secrets.token_hex(16))
    write_key: str = field(default_factory=lambda: secrets.token_hex(16))

    @classmethod
    def at(cls, data: Path) -> "Workspace":
        """Make a workspace with free ports."""
        ingest = free_port()
        return cls(data, ingest, free_port(but={ingest}))

    @property
    def secrets(self) -> Mapping[str, str]:
        """The environment variables that hold the secrets of the pipe."""
        return {"FLIGHTS_KEY": self.write_key, "FLIGHTS_MASK": self.mask_key}

    @property
    def send_log(self) -> Path:
        """The log of sent events; see `sender.py`."""
        return self.data / "sender.tsv"

    @property
    def request_log(self) -> Path:
        """The log of received requests; see `destination.py`."""
        return self.data / "requests.log"

    @property
    def events(self) -> Path:
        """The events to send, one JSON object a line."""
        return self.data / "events.ndjson"

    def pipes(self) -> list[Pipe]:
        """Write the pipe with its schema and lookups into the folder, and load it.

        Raises:
            Misconfigured: the pipe is not valid.
        """
        folder = self.data / "pipes"
        folder.mkdir(parents=True, exist_ok=True)
        address = f"http://127.0.0.1:{self.destination_port}"
        pipe = (PIPE / "flights.yaml").read_text()
        (folder / "flights.yaml").write_text(pipe.replace(PLACEHOLDER, address))
        (folder / "flights.schema.json").write_bytes((PIPE / "flights.schema.json").read_bytes())
        flights.write_lookups(folder / "lookups")
        loaded_pipes, problems = loader.load(folder)
        if problems:
            raise Misconfigured("\n".join(map(str, problems)))
        return [pipe_file.pipe for pipe_file in loaded_pipes]

    def write_events(self, count: int, first: int = 0) -> dict[str, Row]:
        """Write `count` events for the sender, starting with flight number `first`.

        Returns:
            The flights that the events are made of, by event id.
        """
        rows = dict(flights.rows(count, first))
        self.write({name: flights.event(name, row) for name, row in rows.items()})
        return rows

    def write(self, events: Mapping[str, Mapping[str, Any]]) -> None:
        """Write these events for the sender, by event id."""
        with self.events.open("wb") as lines:
            lines.writelines(orjson.dumps(event) + b"\n" for event in events.values())

    def destination(self) -> Process:
        """Make the process of the destination, without starting it."""
        self.request_log.unlink(missing_ok=True)
        argv = [
            sys.executable,
            str(HERE / "destination.py"),
            str(self.destination_port),
            str(self.request_log),
        ]
        return Process("the destination", argv, log=self.data / "logs" / "destination.log")

    def sender(self, rate: float, batch: int = 1, connections: int = CONNECTIONS) -> Process:
        """Make the process of the sender, without starting it.

        Args:
            rate: events a second.
            batch: events in a request.
            connections: that are open at most.
        """
        url = f"http://127.0.0.1:{self.ingest_port}/v1/events"
        argv = [
            sys.executable,
            str(HERE / "sender.py"),
            url,
            str(rate),
            str(self.events),
            str(self.send_log),
            str(batch),
            str(connections),
        ]
        env = os.environ | {"KEY": self.write_key}
        return Process("the sender", argv, log=self.data / "logs" / "sender.log", env=env)

    async def counts(self) -> int:
        """Return the number of requests that the destination has answered, all written to its log.

        Raises:
            OSError: the destination does not answer.
        """
        _, body = await get(self.destination_port, "/counts")
        return int(orjson.loads(body)["arrivals"])

    async def wait_for_destination(self) -> None:
        """Wait until the destination answers.

        Raises:
            Retryable: it does not answer within 10 s.
        """
        end_s = time.monotonic() + START_S
        while True:
            try:
                await self.counts()
                return
            except OSError:
                if time.monotonic() > end_s:
                    raise Retryable(
                        f"the destination did not start; its log is in {self.data / 'logs'}"
                    ) from None
                await asyncio.sleep(0.05)
