"""Run `hifi` as a user does, in a real process, and find all processes that it started."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
import structlog

from hifi_cli.demo import destination
from hifi_infra.ports import free_port

HIFI = Path(sys.executable).with_name("hifi")
MARK = "HIFI_TEST_MARK"
READY_S = 150


@dataclass
class Command:
    """A running `hifi …` with its output in a file. All its descendants inherit a mark in their environment."""

    process: subprocess.Popen[bytes]
    output: Path
    mark: str

    def text(self):
        return self.output.read_text(errors="replace")

    def wait_for(self, text, within_s=READY_S):
        end_s = time.monotonic() + within_s
        while text not in self.text():
            assert self.process.poll() is None, f"it ended with {self.process.returncode}:\n{self.text()}"
            assert time.monotonic() < end_s, f"no {text!r} within {within_s} s:\n{self.text()}"
            time.sleep(0.1)

    def signal(self, number):
        self.process.send_signal(number)

    def wait(self, within_s=90):
        return self.process.wait(within_s)

    def left(self):
        """Return every living descendant, wherever it is in the process tree now."""
        return marked(self.mark)

    def wait_gone(self, within_s=10):
        end_s = time.monotonic() + within_s
        while (processes := self.left()) and time.monotonic() < end_s:
            time.sleep(0.1)
        assert not processes, processes


def marked(mark):
    processes = []
    for process in psutil.process_iter(["pid", "cmdline", "status"]):
        with contextlib.suppress(psutil.Error):
            if process.info["status"] != psutil.STATUS_ZOMBIE and process.environ().get(MARK) == mark:
                processes.append((process.info["pid"], " ".join(process.info["cmdline"])[-100:]))
    return processes


@pytest.fixture(autouse=True)
def own_logs():
    """Restore the logging configuration after a test that runs a command inside this process."""
    root, structlog_config = logging.getLogger(), structlog.get_config()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    for handler in set(root.handlers) - set(handlers):
        root.removeHandler(handler)
    structlog.configure(**structlog_config)


@pytest.fixture(scope="module")
def start_hifi(tmp_path_factory):
    """Start `hifi ARGUMENTS…`; its remaining processes are killed at the end of the module."""
    commands = []

    def start(*arguments, **env):
        mark = uuid.uuid4().hex
        output = tmp_path_factory.mktemp("hifi") / "output"
        with output.open("wb") as file:
            process = subprocess.Popen(
                [HIFI, *map(str, arguments)],
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                env=os.environ | {MARK: mark, "COLUMNS": "200"} | env,
                start_new_session=True,
            )
        commands.append(Command(process, output, mark))
        return commands[-1]

    yield start
    for command in commands:
        command.process.kill()
        command.process.wait()
        for pid, _ in command.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="session")
def hifi():
    """Run `hifi ARGUMENTS…` and return exit status, standard output and standard error."""

    def run(*arguments, stdin=b"", **env):
        completed = subprocess.run(
            [HIFI, *map(str, arguments)],
            input=stdin,
            capture_output=True,
            check=False,
            timeout=300,
            env=os.environ | {"COLUMNS": "200"} | env,
        )
        return completed.returncode, completed.stdout.decode(), completed.stderr.decode()

    return run


@dataclass
class ExternalDestination:
    """The destination of the demo, a server without any hifi code."""

    port: int
    log: Path

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"


@pytest.fixture(scope="module")
def external_destination(tmp_path_factory):
    port, log = free_port(), tmp_path_factory.mktemp("destination") / "requests.log"
    process = subprocess.Popen([sys.executable, destination.__file__, str(port), str(log)])
    yield ExternalDestination(port, log)
    process.kill()
    process.wait()
