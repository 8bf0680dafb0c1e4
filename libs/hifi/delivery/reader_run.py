"""Runs of readers: see `SourcePosition.run`."""

import secrets
from typing import Final

_RUN_BYTES: Final = 8


def new_run() -> bytes:
    """A new value for `SourcePosition.run`."""
    return secrets.token_hex(_RUN_BYTES).encode()
