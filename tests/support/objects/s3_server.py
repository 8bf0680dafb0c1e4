"""An S3 server of its own: versitygw (https://github.com/versity/versitygw), which keeps objects as files."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Self

from hifi_infra.ports import free_port

PROGRAM = Path(sys.executable).parent / "versitygw"
ACCESS_KEY = "hifi"
SECRET_KEY = "right-horse"
BUCKET = "lake"


class S3Server:
    """Runs while the block does, with one bucket."""

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="hifi-s3-")
        self.root = Path(self._folder.name)
        (self.root / BUCKET).mkdir()
        self.port = free_port()
        self._process = subprocess.Popen(
            [PROGRAM, "--quiet", "--port", f"127.0.0.1:{self.port}", "posix", self.root],
            env=os.environ | {"ROOT_ACCESS_KEY": ACCESS_KEY, "ROOT_SECRET_KEY": SECRET_KEY},
            stdout=subprocess.DEVNULL,
        )
        end_s = time.monotonic() + 60
        while not self._answers():
            assert time.monotonic() < end_s, "versitygw does not answer within 60 s"
            time.sleep(0.05)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait()
        self._folder.cleanup()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def freeze(self) -> None:
        """Requests get no answer from now on; those that arrive are processed after `resume`."""
        self._process.send_signal(signal.SIGSTOP)
        end_s = time.monotonic() + 60
        while any(_state(thread) != "T" for thread in Path(f"/proc/{self._process.pid}/task").iterdir()):
            assert time.monotonic() < end_s, "versitygw does not stop within 60 s"
            time.sleep(0.01)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(self.url, timeout=1)  # noqa: S310 - of the server that it started
        except urllib.error.HTTPError:
            return True  # it asks for credentials
        except OSError:
            return False
        return True


def _state(thread: Path) -> str:
    """Of a thread, as /proc has it: `T` when it is stopped."""
    return (thread / "stat").read_text().rpartition(")")[2].split()[0]
