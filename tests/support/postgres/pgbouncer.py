"""PgBouncer in transaction mode: the transactions of a client run on different connections to the server."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.postgres.postgres_server import PASSWORD, ROOT_USER, USER

from hifi_infra.ports import free_port


@contextlib.contextmanager
def pool_of(server_port: int, folder: Path) -> Iterator[int]:
    """The port of a pool with two connections to a server of PostgreSQL; skips the test without PgBouncer.

    Args:
        server_port: of PostgreSQL on this machine.
        folder: for its settings.
    """
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip("PgBouncer is not installed")
    port, users, settings = free_port(), folder / "users", folder / "pgbouncer.ini"
    users.write_text(f'"postgres" "{PASSWORD}"\n')
    settings.write_text(
        f"[databases]\npostgres = host=127.0.0.1 port={server_port}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nunix_socket_dir =\nauth_type = plain\nauth_file = {users}\npool_mode = transaction\n"
        "default_pool_size = 2\n"
    )
    user = USER if os.getuid() == ROOT_USER else None
    if user:
        folder.chmod(0o755)
        for parent in (folder.parent, folder.parent.parent):
            parent.chmod(0o755)
        for file in (users, settings):
            shutil.chown(file, user)
    with subprocess.Popen([program, str(settings)], user=user, stderr=subprocess.DEVNULL) as process:
        try:
            yield port
        finally:
            process.terminate()
