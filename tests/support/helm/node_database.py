"""A PostgreSQL server beside the pods of a node, with a log that Debezium can read."""

import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.support.kubernetes.node import Node, until
from tests.support.kubernetes.places import ADDRESS

from hifi_infra.postgres.server import PASSWORD, USER, postgres_programs

PORT: Final = 5432
_PODS: Final = "10.0.0.0/8"
_SYSTEM_USER: Final = "postgres"


class NodeDatabase:
    """Runs while the block does, at `ADDRESS:PORT` of the node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._programs = postgres_programs()

    def __enter__(self) -> Self:
        self._folder = Path(
            tempfile.mkdtemp(prefix="hifi-postgres-", dir="/tmp")
        )  # others may enter only /tmp
        password, access = self._folder / "password", self._folder / "access"
        password.write_text(PASSWORD)
        access.write_text(f"host all,replication all {_PODS} scram-sha-256\n")
        for path in (self._folder, password, access):
            shutil.chown(path, _SYSTEM_USER)
        data = str(self._folder / "data")
        subprocess.run(
            [self._programs / "initdb", "-D", data, "-U", USER, "--pwfile", password, "--no-sync"],
            user=_SYSTEM_USER,
            cwd=self._folder,
            stdout=subprocess.DEVNULL,
            check=True,
        )
        settings = {
            "port": PORT,
            "listen_addresses": ADDRESS,
            "unix_socket_directories": "",
            "hba_file": access,
            "wal_level": "logical",
            "fsync": "off",
        }
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        as_user = ("setpriv", "--reuid", _SYSTEM_USER, "--regid", _SYSTEM_USER, "--clear-groups")
        with (self._folder / "log").open("wb") as log:
            self._server = subprocess.Popen(
                self._in_network(*as_user, str(self._programs / "postgres"), "-D", data, *options),
                cwd=self._folder,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        try:
            until(self._accepts_connections, "the database accepts connections")
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.send_signal(signal.SIGQUIT)  # with SIGTERM it would wait for its clients
        self._server.wait()
        shutil.rmtree(self._folder)

    def run(self, statement: str) -> list[list[str]]:
        """The rows of a statement as texts."""
        options = ("-h", ADDRESS, "-p", str(PORT), "-U", USER, "-v", "ON_ERROR_STOP=1", "-At")
        completed = subprocess.run(
            self._in_network(str(self._programs / "psql"), *options, "-c", statement),
            env={**os.environ, "PGPASSWORD": PASSWORD},
            capture_output=True,
            text=True,
            check=False,
        )
        assert completed.returncode == 0, completed.stderr
        return [line.split("|") for line in completed.stdout.splitlines()]

    def _accepts_connections(self) -> bool:
        assert self._server.poll() is None, (self._folder / "log").read_text()
        ready = self._in_network(str(self._programs / "pg_isready"), "-q", "-h", ADDRESS, "-p", str(PORT))
        return subprocess.run(ready, check=False).returncode == 0

    def _in_network(self, *words: str) -> list[str]:
        """A command in the network of the node, with files and processes of the machine."""
        return ["nsenter", "-t", str(self._node.process), "-n", *words]
