"""The first principal of a mesh's management API, so that somebody can use it and create others."""

import asyncio
import os
from pathlib import Path
from typing import Final

from hifi.control.principals.principal import Role
from hifi.control.principals.principal_store import create_principal
from hifi.kafka.topics import ControlTopics
from hifi.runtime.clock import now_us

_NAME: Final = "admin"


async def create_first_principal(bootstrap: str, topics: ControlTopics, file: Path) -> None:
    """Create an administrator, and write its token to a file that only this user may read.

    Nothing is done if the file exists, so that a principal that was revoked stays revoked.

    Raises:
        Retryable: Kafka does not answer.
        OSError: the file cannot be written.
    """
    if file.exists():
        return
    token = await create_principal(bootstrap, topics, _NAME, Role.ADMIN, author="hifi up", at_us=now_us())
    await asyncio.to_thread(write_token, file, token)


def write_token(file: Path, token: str) -> None:
    """Write a token to a new file with mode 0600. Blocking.

    Raises:
        OSError: the file exists, or cannot be written.
    """
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as written:
        written.write(token + "\n")
