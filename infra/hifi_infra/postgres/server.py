"""One PostgreSQL server as a child process, with password authentication, on a free port of this machine."""

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Self

from hifi.runtime.errors import Misconfigured, Retryable
from hifi_infra.debian_packages import can_install, install
from hifi_infra.ports import free_port
from hifi_infra.process.process import Process

PASSWORD: Final = "right-horse"  # noqa: S105 - of servers that exist for minutes and listen on loopback
USER: Final = "postgres"
_SYSTEM_USER: Final = "postgres"
"""User of the system that runs the server where this process is root: PostgreSQL refuses to run as root."""
_ROOT: Final = 0
_PLACES: Final = ("/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin")
_PACKAGE: Final = "postgresql"
_START_S: Final = 180.0
_POLL_S: Final = 0.1


def postgres_programs() -> Path:
    """Folder of PostgreSQL's programs. Installs them where they are missing and apt-get needs no password.

    Raises:
        Misconfigured: they are missing and cannot be installed; the message has the command that does it.
    """
    if (folder := _find_programs()) is not None:
        return folder
    if not can_install():
        raise Misconfigured(
            "the server of PostgreSQL is not installed: install it, on Debian with `apt-get install postgresql`"
        )
    install("PostgreSQL", _PACKAGE)
    if (folder := _find_programs()) is None:
        raise Misconfigured(f"{_PACKAGE} was installed, and there is no initdb in {' or '.join(_PLACES)}")
    return folder


def _find_programs() -> Path | None:
    programs = [path for pattern in _PLACES for path in Path("/").glob(f"{pattern[1:]}/initdb")]
    path_program = shutil.which("initdb")
    if path_program:
        programs.append(Path(path_program).resolve())
    return max(programs).parent if programs else None


class PostgresServer:
    """Runs from `start` to `remove`. Its data are in a folder of their own below /tmp, which other users may enter."""

    def __init__(self, name: str, log: Path, options: Mapping[str, str] | None = None) -> None:
        """Prepare the server; `start` starts it.

        Args:
            name: for messages.
            log: file of its log.
            options: settings of the server, such as `wal_level`.
        """
        self.port: Final = free_port()
        self._name = name
        self._log = log
        self._options = dict(options or {})
        self._user = _SYSTEM_USER if os.getuid() == _ROOT else None
        self._folder: Path | None = None
        self._programs = Path()
        self.process: Process | None = None

    @property
    def url(self) -> str:
        """URL of its database, with the password."""
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/postgres"

    async def start(self) -> Self:
        """Make the database, start the server, and return when it accepts connections.

        Raises:
            Misconfigured: PostgreSQL is not installed and cannot be.
            Retryable: it does not start; the message has the end of its log.
        """
        self._programs = await asyncio.to_thread(postgres_programs)
        if self._folder is None:
            self._folder = await asyncio.to_thread(self._make_folder)
        command = [str(self._programs / "postgres"), "-D", str(self._folder / "data")]
        options = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self._folder),
            **self._options,
        }
        for name, value in options.items():
            command += ["-c", f"{name}={value}"]
        if self._user:
            command = ["setpriv", "--reuid", self._user, "--regid", self._user, "--clear-groups", *command]
        self.process = Process(self._name, command, log=self._log, cwd=self._folder)
        await self.restart()
        return self

    async def restart(self) -> None:
        """Start it, for the first time or after it was killed, and return when it accepts connections.

        Raises:
            Retryable: as `start`.
        """
        process = self.process
        assert process is not None
        await process.start()
        end_s = time.monotonic() + _START_S
        ready_command = [str(self._programs / "pg_isready"), "-h", "127.0.0.1", "-p", str(self.port), "-q"]
        while await asyncio.to_thread(subprocess.call, ready_command) != 0:
            if not process.running or time.monotonic() > end_s:
                raise Retryable(
                    f"{self._name} does not start; end of its log {self._log}:\n{process.tail(5)}"
                )
            await asyncio.sleep(_POLL_S)

    async def remove(self) -> None:
        """End the server and delete its data."""
        if self.process is not None and self.process.started:
            await self.process.kill()
        if self._folder is not None:
            await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    def _make_folder(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="hifi-postgres-", dir="/tmp"))
        password = folder / "password"
        password.write_text(PASSWORD)
        if self._user:
            for path in (folder, password):
                shutil.chown(path, self._user)
        self._run(
            folder,
            [
                "initdb",
                "-D",
                str(folder / "data"),
                "-U",
                USER,
                "-A",
                "scram-sha-256",
                "--pwfile",
                str(password),
            ],
        )
        return folder

    def _run(self, folder: Path, command: Sequence[str]) -> None:
        completed = subprocess.run(
            [self._programs / command[0], *command[1:]],
            user=self._user,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if completed.returncode:
            raise Misconfigured(f"{command[0]} failed: {completed.stderr.strip()}")
