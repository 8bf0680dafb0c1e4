"""Run every command of the README and the quickstart, in the order of the page."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hifi_infra.ports import is_free

pytestmark = pytest.mark.timeout(600)
ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
PORTS = (8080, 8090, 9000, 9900)
MAKE = re.compile(r"make (\w+)")
READY_S = 150


def commands(page):
    """Return the commands of code blocks without a language; joins continued lines and removes comments."""
    blocks = re.findall(r"^```\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL)
    lines = "".join(block for block in blocks if "─▶" not in block).replace("\\\n", "").splitlines()
    typed = [line.partition("  #")[0].strip() for line in lines]
    return [line.replace(".venv/bin/hifi", "hifi") for line in typed if line]


class Shell:
    """A shell that keeps exported variables and ends its background processes with it."""

    def __init__(self, state):
        self.state = state
        self.exports = ""
        self.running = []
        self.env = os.environ | {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "XDG_STATE_HOME": str(state),
            "COLUMNS": "200",
        }

    def run(self, line):
        if line.startswith("export "):
            self.exports += line + "\n"
        elif "destination.py" in line:
            self.start(line.rstrip("& "))
        elif line.startswith("hifi up"):
            self.end("hifi up")
            self.wait_for(self.start(line), "Send events to")
        else:
            completed = subprocess.run(
                ["bash", "-euc", self.exports + line],
                cwd=ROOT, env=self.env, capture_output=True, check=False, timeout=120,
            )  # fmt: skip
            assert completed.returncode == 0, (
                f"{line}\n{completed.stdout.decode()}\n{completed.stderr.decode()}"
            )
            return completed.stdout.decode()
        return ""

    def start(self, line):
        output = self.state / f"{len(self.running)}.out"
        with output.open("wb") as file:
            command = ["bash", "-euc", f"{self.exports}exec {line}"]
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env=self.env,
                stdout=file,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
            )
        self.running.append((line, process, output))
        return output

    def wait_for(self, output, text):
        end_s = time.monotonic() + READY_S
        while text not in output.read_text():
            assert time.monotonic() < end_s, output.read_text()
            time.sleep(0.1)

    def end(self, beginning):
        for line, process, _ in self.running:
            if line.startswith(beginning) and process.poll() is None:
                process.send_signal(signal.SIGINT)
                process.wait(120)

    def text(self, beginning):
        return "".join(output.read_text() for line, _, output in self.running if line.startswith(beginning))


@pytest.fixture
def shell(tmp_path):
    assert all(map(is_free, PORTS)), f"the pages use the ports {PORTS}"
    page_shell = Shell(tmp_path)
    yield page_shell
    page_shell.end("hifi up")
    page_shell.end("python3")
    for _, process, _ in page_shell.running:
        with contextlib.suppress(ProcessLookupError):
            process.kill()


# Faster than the quickstart: the README, and tests/cli/commands, which use the same commands.
@pytest.mark.parametrize("page", ["README.md", pytest.param("docs/quickstart.md", marks=pytest.mark.more)])
def test_every_command_of_the_page_works(page, shell):
    makefile = (ROOT / "Makefile").read_text()
    for line in commands(page):
        if target := MAKE.match(line):  # CI runs the targets, and tests cover what they call
            assert f"\n{target[1]}:" in makefile
            continue
        output = shell.run(line)
        if line.startswith("curl"):
            assert output.startswith("HTTP/1.1 202")
            shell.wait_for(shell.running[0][2], '"hello": "world"')
    assert "Ready." in shell.text("hifi up")
