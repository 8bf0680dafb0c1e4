"""A PostgreSQL server of its own, with password authentication, on a free port of this machine."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

from hifi_infra.ports import free_port

PROGRAMS = Path("/usr/lib/postgresql/15/bin")
PASSWORD = "right horse"
ROOT_USER = 0
USER = "postgres"
"""User of the system that runs the server: PostgreSQL refuses to run as root."""


class PostgresServer:
    """Runs while the block does.

    Args:
        locale: name of a locale that the server has, such as `de_DE.UTF-8`; it is built. Empty: those of this machine.
    """

    def __init__(self, locale: str = "") -> None:
        self._locale = locale

    def __enter__(self) -> Self:
        self._user = USER if os.getuid() == ROOT_USER else None
        self._folder = Path(
            tempfile.mkdtemp(prefix="hifi-postgres-", dir="/tmp")
        )  # others may enter only /tmp
        password = self._folder / "password"
        password.write_text(PASSWORD)
        if self._user:
            for path in (self._folder, password):
                shutil.chown(path, self._user)
        self._environment = dict(os.environ)
        if self._locale:
            language, _, encoding = self._locale.partition(".")
            locales = self._folder / "locales"
            locales.mkdir()
            subprocess.run(
                ["localedef", "-i", language, "-f", encoding, str(locales / self._locale)],
                check=True,
                timeout=60,
            )
            self._environment["LOCPATH"] = str(locales)
        data = str(self._folder / "data")
        self._run(
            "initdb", "-D", data, "-U", USER, "-A", "scram-sha-256", "--pwfile", str(password), "--no-sync"
        )
        self.port = free_port()
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-w", "-m", "immediate", "stop")
        shutil.rmtree(self._folder)

    def become_standby(self) -> None:
        """Start again as a standby, of no primary server."""
        self._run("pg_ctl", "-D", str(self._folder / "data"), "-w", "-m", "fast", "stop")
        (self._folder / "data" / "standby.signal").touch()
        self._start()

    @property
    def url(self) -> str:
        return self.url_with(PASSWORD)

    def url_with(self, password: str) -> str:
        return f"postgresql://{USER}:{password.replace(' ', '%20')}@127.0.0.1:{self.port}/postgres"

    def _start(self) -> None:
        data, log = str(self._folder / "data"), str(self._folder / "log")
        options = f"-p {self.port} -h 127.0.0.1 -k {self._folder} -F"
        self._run("pg_ctl", "-D", data, "-w", "-l", log, "-o", options, "start")

    def _run(self, program: str, *arguments: str) -> None:
        subprocess.run(
            [PROGRAMS / program, *arguments],
            check=True,
            user=self._user,
            cwd=self._folder,
            env=self._environment,
            stdout=subprocess.DEVNULL,
            timeout=60,
        )
