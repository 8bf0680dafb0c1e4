"""The secret of an executor that runs as a service, in a file."""

from pathlib import Path
from typing import Final

from hifi.runtime.errors import Misconfigured

_SHORTEST_SECRET: Final = 32


def read_secret(file: Path) -> str:
    """The secret that actors send.

    Raises:
        Misconfigured: the file cannot be read, or the secret is too short.
    """
    try:
        secret = file.read_text().strip()
    except OSError as error:
        raise Misconfigured(f"HIFI_EXECUTOR_SECRET_FILE: {file} cannot be read: {error}") from error
    if len(secret) < _SHORTEST_SECRET:
        raise Misconfigured(
            f"HIFI_EXECUTOR_SECRET_FILE: {file} has {len(secret)} characters; write at least {_SHORTEST_SECRET}, as "
            "infra/docker/secrets.sh does"
        )
    return secret
