"""Record terminal sessions as SVG pictures: `python -m hifi_cli.reference.terminal docs/images [mesh|demo]`.

The output comes from real commands in a terminal of 80 columns: a mesh runs `examples/hello` on the default ports for
about two minutes (`terminal.svg`), then `hifi demo` runs for 20 seconds (`demo.svg`). Run it in the root of the
repository.
"""

import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from hifi_infra.ports import is_free

COLUMNS: Final = 80
READY: Final = "Ready."
READY_S: Final = 180.0
LOAD_S: Final = 75.0
"""Events are sent for this long, and then until the current minute ends."""
SETTLE_S: Final = 5
"""Delay of closing a minute, shortened from 300 s."""
PORTS: Final = (8080, 8090, 9000)
HIFI: Final = Path(sys.executable).with_name("hifi")
CURL: Final = (
    'curl -i -H "Authorization: Bearer hello" -H "Content-Type: application/json" '
    '-d \'{"hello": "world"}\' http://127.0.0.1:8080/v1/pipes/hello/events'
)
CURL_SHOWN: Final = (
    'curl -i -H "Authorization: Bearer hello" \\\n'
    '    -H "Content-Type: application/json" \\\n'
    '    -d \'{"hello": "world"}\' \\\n'
    "    http://127.0.0.1:8080/v1/pipes/hello/events"
)


class Recording:
    """A console of 80 columns whose content becomes an SVG picture."""

    def __init__(self) -> None:
        self._console = Console(width=COLUMNS, record=True, file=io.StringIO(), force_terminal=True)

    def command(self, command: str, output: str) -> None:
        """Add a prompt with a command and its output."""
        self._console.print(Text.assemble(("$ ", "bold green"), (command, "bold")))
        self._console.print(Text.from_ansi(output.strip("\n")))
        self._console.print()

    def save(self, file: Path, title: str) -> None:
        """Write the picture."""
        self._console.save_svg(str(file), title=title, theme=MONOKAI, unique_id="terminal")


def main() -> None:
    """Record both sessions, or the one named, into the folder given as the first argument."""
    folder, sessions = Path(sys.argv[1]), sys.argv[2:] or ["mesh", "demo"]
    if used_ports := [port for port in PORTS if not is_free(port)]:
        sys.exit(f"these ports are in use: {used_ports}")
    if "mesh" in sessions:
        with tempfile.TemporaryDirectory(prefix="hifi-recording-") as data:
            session = Recording()
            _record_mesh(session, Path(data))
            session.save(folder / "terminal.svg", "hifi")
    if "demo" in sessions:
        session = Recording()
        options = ("demo", "--rate", "200", "--for", "20")
        session.command(f"hifi {' '.join(options)}", _output(*options, stderr=subprocess.DEVNULL))
        session.save(folder / "demo.svg", "hifi demo")


def _record_mesh(session: Recording, data: Path) -> None:
    env = {"HIFI_DATA": str(data / "hifi"), "HIFI_OBSERVE_SETTLE_S": str(SETTLE_S)}
    destination = [sys.executable, "examples/hello/destination.py", "9000"]
    with _running(destination, data / "destination.log", {}), _mesh(data, env) as start_output:
        session.command("hifi up --pipes examples/hello", start_output.replace(str(data), "~/.local/state"))
        answer = subprocess.run(shlex.split(CURL), check=True, capture_output=True, text=True)
        session.command(CURL_SHOWN, answer.stdout.replace("\r", ""))
        with _load(env):
            time.sleep(LOAD_S)
            time.sleep(60 - time.time() % 60)
            session.command("hifi status", _output("status", env=env))
        time.sleep(SETTLE_S + 3)
        session.command("hifi minutes hello --last 3", _output("minutes", "hello", "--last", "3", env=env))


@contextlib.contextmanager
def _load(env: dict[str, str]) -> Iterator[None]:
    """Send events while the block runs, 400 with each `hifi send`."""
    stop = threading.Event()
    thread = threading.Thread(target=_send, args=(env, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _send(env: dict[str, str], stop: threading.Event) -> None:
    lines = "".join(f'{{"n": {number}}}\n' for number in range(400))
    while not stop.is_set():
        subprocess.run(
            [HIFI, "send", "hello", "-", "--key", "hello"],
            input=lines.encode(),
            check=True,
            capture_output=True,
            env=os.environ | env,
        )


@contextlib.contextmanager
def _mesh(data: Path, env: dict[str, str]) -> Iterator[str]:
    """Run `hifi up` in the block and yield what it printed when it was ready, without the log of its phases."""
    log = data / "up.log"
    with _running([str(HIFI), "up", "--pipes", "examples/hello"], log, env):
        end_s = time.monotonic() + READY_S
        while READY not in log.read_text():
            if time.monotonic() > end_s:
                raise TimeoutError(log.read_text())
            time.sleep(0.2)
        time.sleep(1)
        text = log.read_text()
        yield re.sub(r"^\d\d:\d\d:\d\d .*\n", "", text[text.index(READY) :], flags=re.MULTILINE)


@contextlib.contextmanager
def _running(command: Sequence[str], log: Path, env: dict[str, str]) -> Iterator[None]:
    with log.open("wb") as file:
        process = _start(command, file, env)
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(90)


def _start(command: Sequence[str], output: IO[bytes], env: dict[str, str]) -> subprocess.Popen[bytes]:
    environment = os.environ | {"COLUMNS": str(COLUMNS)} | env
    return subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)


def _output(*arguments: str, env: dict[str, str] | None = None, stderr: int | None = None) -> str:
    """Run `hifi` and return its standard output with colours."""
    environment = os.environ | {"COLUMNS": str(COLUMNS), "FORCE_COLOR": "1"} | (env or {})
    completed = subprocess.run(
        [HIFI, *arguments], check=False, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environment
    )
    return completed.stdout


if __name__ == "__main__":
    main()
