"""The first principal of a mesh, so that somebody can use its consoles and create others."""

import asyncio
import os
from pathlib import Path
from typing import Final

from hifi.control.principals.principal import Role
from hifi.control.principals.principal_store import create_principal, had_principal
from hifi.kafka.topics import PrincipalTopics
from hifi.runtime.clock import now_us
from hifi.runtime.errors import Misconfigured

ADMIN: Final = "admin"
OBSERVE: Final = "observe"
"""Principal with which the observe of each colour reads that of the other."""
_SHORTEST_TOKEN: Final = 32


async def create_first_principal(
    bootstrap: str, topics: PrincipalTopics, file: Path, name: str = ADMIN, role: Role = Role.ADMIN
) -> None:
    """Create a principal, and write its token to a file that only this user may read.

    Nothing is done if the file exists, so that a principal that was revoked stays revoked.

    Args:
        bootstrap: the control plane's Kafka.
        topics: of principals and audit.
        file: for the token.
        name: of the principal.
        role: of the principal.

    Raises:
        Retryable: Kafka does not answer.
        OSError: the file cannot be written.
    """
    if file.exists():
        return
    token = await create_principal(bootstrap, topics, name, role, author="hifi up", at_us=now_us())
    await asyncio.to_thread(write_token, file, token)


async def create_with_token(
    bootstrap: str, topics: PrincipalTopics, name: str, role: Role, file: Path, variable: str
) -> bool:
    """Create a principal with the token in a file, unless one of its name ever was; returns whether it was created.

    Args:
        bootstrap: the control plane's Kafka.
        topics: of principals and audit.
        name: of the principal.
        role: of the principal.
        file: with the token.
        variable: that names the file.

    Raises:
        Misconfigured: the token cannot be read, or is short.
        Retryable: Kafka does not answer.
    """
    token = await asyncio.to_thread(_read_token, file, variable)
    if await had_principal(bootstrap, topics, name):
        return False
    await create_principal(bootstrap, topics, name, role, author="setup", at_us=now_us(), token=token)
    return True


def _read_token(file: Path, variable: str) -> str:
    try:
        token = file.read_text().strip()
    except (OSError, ValueError) as error:
        raise Misconfigured(f"{variable}: {file} cannot be read: {error}") from error
    if len(token) < _SHORTEST_TOKEN:
        raise Misconfigured(
            f"{variable}: {file} has {len(token)} characters; write a random token of at least "
            f"{_SHORTEST_TOKEN}, as infra/docker/secrets.sh does"
        )
    return token


def write_token(file: Path, token: str) -> None:
    """Write a token to a new file with mode 0600. Blocking.

    Raises:
        OSError: the file exists, or cannot be written.
    """
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(token + "\n")
