"""Instances whose process cannot be started; no service runs."""

import asyncio
import sys
from pathlib import Path

import pytest

from hifi_infra.mesh import fleet
from hifi_infra.mesh.fleet import Fleet
from hifi_infra.mesh.journal import Journal
from hifi_infra.mesh.plan import Plan
from hifi_infra.process.process import Process

SLEEPING = [sys.executable, "-c", "import time; time.sleep(600)"]


@pytest.fixture
def sleeping_fleet(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fleet:
    """A fleet whose services sleep, with any release."""
    monkeypatch.setattr(fleet, "command", lambda _: SLEEPING)
    monkeypatch.setattr(fleet, "command_of", lambda _, argv: argv)
    monkeypatch.setattr(fleet, "release_environment", lambda *_: {})
    monkeypatch.setattr(fleet, "environment", lambda *_: {})
    monkeypatch.setattr(fleet, "require_release", lambda *_: None)
    return Fleet(Plan(tmp_path, kafka="127.0.0.1:1"), Journal())


async def test_an_instance_that_could_not_be_started_is_started_when_its_release_is_set_again(
    sleeping_fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, failures = Process.start, [True]

    async def start_later(process: Process) -> None:
        if failures:
            failures.pop()
            raise OSError("no memory")
        await start(process)

    monkeypatch.setattr(Process, "start", start_later)
    instances = sleeping_fleet.instances["egest"]
    try:
        with pytest.raises(OSError, match="no memory"):
            await sleeping_fleet.set_release("egest-1", "1.2", "test")
        assert instances == [], "an instance that was added counts only if it was started"
        await sleeping_fleet.set_release("egest-1", "1.2", "test")
        failures.append(True)
        with pytest.raises(OSError, match="no memory"):
            await sleeping_fleet.set_release("egest-1", "1.3", "test")
        await sleeping_fleet.set_release("egest-1", "1.3", "test")
        assert [instance.spec.release for instance in instances] == ["1.3"]
        assert instances[0].process.running
        process = instances[0].process
        await sleeping_fleet.set_release("egest-1", "1.3", "test")
        assert instances[0].process is process
    finally:
        await asyncio.gather(*(instance.kill() for instance in instances))
