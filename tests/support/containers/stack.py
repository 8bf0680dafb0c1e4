"""A mesh in containers: compose commands, a sender outside, and the destination's request log."""

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

ROOT = Path(__file__).parents[3]
DATA_PLANE = ("ingest", "collect", "normalize", "enrich", "egest", "retrier", "observe")
CONTROL = ("rollout", "manage", "deploy", "scale")
IMAGES = ("kafka", "tools", "destination", "connect", *DATA_PLANE, *CONTROL)
WITHIN_S = float(os.environ.get("HIFI_TEST_WITHIN_S", "300"))
"""Bound on every wait; far above what a quiet machine takes."""


def run(
    *command: str, env: Mapping[str, str] | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a command; a failure shows its output."""
    completed = subprocess.run(
        command,
        cwd=ROOT,
        # The mesh has its own list of what pipes may connect to, not that of the test process.
        env={name: value for name, value in os.environ.items() if name != "HIFI_EGRESS_ALLOW"}
        | dict(env or {}),
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert not check or completed.returncode == 0, (
        f"{' '.join(command)} ended with {completed.returncode}:\n{completed.stdout}{completed.stderr}"
    )
    return completed


def until(
    condition: Callable[[], object], description: str, within_s: float = WITHIN_S, every_s: float = 0.5
) -> None:
    """Poll until a condition holds; less often where asking is a program that takes a second of CPU time."""
    end_s = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < end_s, f"not within {within_s:.0f} s: {description}"
        time.sleep(every_s)


def slow_pipes(folder: Path) -> str:
    """A copy of the example's pipes with an SLO that a slow machine meets, too: actions wait for a stable stream."""
    pipes = folder / "pipes"
    shutil.copytree(ROOT / "examples/compose/pipes", pipes)
    with (pipes / "orders.yaml").open("a") as file:
        file.write("\nslo: {p95: 120s}\n")
    for path in (pipes, *pipes.parents[:3]):
        path.chmod(0o755)
    return str(pipes)


@dataclass
class ComposeMesh:
    """A compose project.

    Attributes:
        project: its name.
        env: the variables of compose.yaml.
        files: of Compose.
        profiles: beside those of the destination, of a control plane and of Kafka Connect that `env` has.
    """

    project: str
    env: dict[str, str]
    files: tuple[str, ...] = ("infra/compose.yaml",)
    profiles: tuple[str, ...] = ()

    def compose(
        self, *arguments: str, check: bool = True, env: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        files = [word for file in self.files for word in ("-f", file)]
        names = ["demo", *(["control", "executor"] if "HIFI_CONTROL" in self.env else [])]
        names += [*(["connect"] if "HIFI_CONNECT" in self.env else []), *self.profiles]
        profiles = [word for name in names for word in ("--profile", name)]
        command = ("infra/docker/compose.sh", *files, *profiles, "-p", self.project, *arguments)
        return run(*command, env={**self.env, **(env or {})}, check=check)

    def up(self, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        self.compose("up", "--wait", "--wait-timeout", str(int(WITHIN_S * 2)), *arguments, env=env)

    def down(self) -> None:
        self.compose("kill", check=False)
        self.compose("down", "--volumes", "--remove-orphans", "--timeout", "1", check=False)

    def containers(self, service: str) -> list[str]:
        return self.compose("ps", "--quiet", service).stdout.split()

    def health(self, service: str) -> list[str]:
        """Health of each container of a service: starting, healthy, unhealthy."""
        return [inspect(container, "{{.State.Health.Status}}") for container in self.containers(service)]

    def waiting(self, service: str) -> dict[str, str]:
        """The reason for which the first container of a service waits; empty when it is ready."""
        answer = run("docker", "exec", self.containers(service)[0], *READY, check=False).stdout
        try:
            return dict(json.loads(answer)["waiting"])
        except ValueError:
            return {"/readyz": "no answer"}

    def hifi(self, *arguments: str) -> str:
        """Run the command `hifi` inside the network; returns what it prints."""
        return self.compose("run", "--rm", "--no-deps", "-T", "cli", *arguments).stdout

    def executor(self, *change: str) -> list[dict[str, Any]]:
        """Instances that the executor reports, after a change of a service to a number if there is one."""
        container = self.containers("deploy")[0]
        completed = run("docker", "exec", container, "/opt/hifi/bin/python", "-c", _EXECUTOR, *change)
        return list(json.loads(completed.stdout))

    def crash(self, service: str) -> None:
        """SIGKILL all processes of the first container of a service; Docker's restart policy starts it again."""
        container = self.containers(service)[0]
        before = inspect(container, "{{.RestartCount}}")
        python = "/usr/local/bin/python3"
        run("docker", "exec", container, python, "-c", "import os; os.kill(-1, 9)", check=False)
        until(lambda: inspect(container, "{{.RestartCount}}") != before, f"{service} is started again")

    def arrivals(self, path: str = "/warehouse") -> Counter[str]:
        """Number of arrivals of each event id at a path."""
        return Counter(headers["ce-id"] for headers, _ in self.requests(path))

    def requests(self, path: str) -> list[tuple[dict[str, str], str]]:
        """Headers and body of each request at a path, from the destination's request log."""
        container = self.containers("destination")[0]
        books = run("docker", "exec", container, "cat", "/var/lib/destination/books").stdout.splitlines()
        heads = [json.loads(line) for line in books[0::2]]
        return [
            (head["headers"], body)
            for head, body in zip(heads, books[1::2], strict=False)
            if head["path"] == path
        ]


_EXECUTOR = """
import asyncio, json, sys
import aiohttp
from hifi_infra.mesh.executor_client import MeshExecutor

async def main():
    secret = open("/run/secrets/executor_secret").read().strip()
    async with aiohttp.ClientSession() as session:
        executor = MeshExecutor(session, "http://executor:9400", secret)
        if sys.argv[1:]:
            await executor.scale(sys.argv[1], int(sys.argv[2]), "a test", 0)
        found = await executor.instances()
        print(json.dumps([one.json() for ones in found.values() for one in ones]))

asyncio.run(main())
"""

READY = ("/opt/hifi/bin/python", "-I", "-S", "/opt/hifi/ready.py")


def inspect(name: str, template: str) -> str:
    return run("docker", "inspect", "--format", template, name).stdout.strip()


@dataclass
class SteadySender:
    """Sends single events at a steady rate from outside, each once, and keeps the answers."""

    url: str
    key: str
    rate: float = 50
    name: str = "e"
    accepted: set[str] = field(default_factory=set)
    doubtful: set[str] = field(default_factory=set)
    """Ids without a 202: they may or may not have been accepted."""
    answers: Counter[int] = field(default_factory=Counter)
    """Number of answers of each status."""
    refusals: Counter[str] = field(default_factory=Counter)
    """Texts of answers other than 202, with their sender, to their number."""

    async def send(self, seconds: float) -> None:
        """Send for a number of seconds."""
        await self.send_while(asyncio.sleep(seconds))

    async def send_while(self, work: Coroutine[Any, Any, object]) -> None:
        """Send until a coroutine has ended; raises its error."""
        task = asyncio.create_task(work)
        timeout = aiohttp.ClientTimeout(total=15)
        connector = aiohttp.TCPConnector(limit=64)
        async with (
            aiohttp.ClientSession(timeout=timeout, connector=connector) as session,
            asyncio.TaskGroup() as group,
        ):
            began_s = time.monotonic()
            number = 0
            while not task.done():
                due = int((time.monotonic() - began_s) * self.rate)
                while number < due:
                    number += 1
                    group.create_task(self._send_event(session, f"{self.name}-{number}"))
                await asyncio.sleep(0.02)
        await task

    async def _send_event(self, session: aiohttp.ClientSession, name: str) -> None:
        event = {"id": name, "customer": f"c{hash(name) % 60}", "amount": 12.5}
        try:
            headers = {"Authorization": f"Bearer {self.key}"}
            async with session.post(
                f"{self.url}/v1/pipes/orders/events", json=event, headers=headers
            ) as answer:
                text = await answer.text()
                self.answers[answer.status] += 1
                if answer.status != 202:
                    self.refusals[
                        f"{answer.status} {answer.headers.get('Retry-After', '')} {text[:300]}"
                    ] += 1
                (self.accepted if answer.status == 202 else self.doubtful).add(name)
        except (aiohttp.ClientError, TimeoutError):
            self.doubtful.add(name)


def all_arrived_once(mesh: ComposeMesh, *senders: SteadySender, repeats: int = 0) -> None:
    """Check that each accepted event arrived exactly once and each doubtful one at most once.

    Args:
        mesh: the mesh with the destination.
        senders: the senders of the events.
        repeats: how many arrivals beyond the first are allowed; above 0 only when egest was killed while it sent.
    """
    accepted = set[str]().union(*(sender.accepted for sender in senders))
    doubtful = set[str]().union(*(sender.doubtful for sender in senders))
    print(f"{len(accepted)} accepted, {len(doubtful)} doubtful")
    assert accepted, "nothing was accepted"
    until(lambda: not accepted - mesh.arrivals().keys(), "every accepted event is at the destination")
    time.sleep(3)  # a second arrival would come a little later
    arrival_counts = mesh.arrivals()
    expected_names = accepted | doubtful
    repeated_counts = {
        name: count for name, count in arrival_counts.items() if name in expected_names and count > 1
    }
    assert sum(count - 1 for count in repeated_counts.values()) <= repeats, (
        f"arrived again: {repeated_counts}"
    )
