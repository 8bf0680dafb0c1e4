"""A PostgreSQL server that begins as a copy of another one and follows it until it is promoted."""

import subprocess
from collections.abc import Mapping
from pathlib import Path

from hifi_infra.postgres.server import PASSWORD, USER, PostgresServer


class Standby(PostgresServer):
    """A standby; `SELECT pg_promote()` makes it a server of its own."""

    def __init__(self, primary: PostgresServer, log: Path, options: Mapping[str, str]) -> None:
        super().__init__("the standby", log, options)
        self._primary = primary

    def _make_folder(self) -> Path:
        folder = super()._make_folder()
        data = folder / "data"
        subprocess.run(["rm", "-r", str(data)], check=True)
        command = [str(self._programs / "pg_basebackup"), "-D", str(data), "-R", "-X", "stream", "-c", "fast"]
        command += ["-d", f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self._primary.port}/"]
        subprocess.run(command, check=True, user=self._user, cwd=folder, capture_output=True)
        return folder
