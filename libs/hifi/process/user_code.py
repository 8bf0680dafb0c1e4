"""What processes get that run users' functions: few variables, and bounded memory."""

import os
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_PUBLIC: Final = (
    "CONDA_", "HIFI_COMPILED", "HIFI_PIPES_FUNCTION_FOLDERS", "HOME", "HOSTNAME", "JAVA_", "LANG", "LC_", "LD_",
    "OMP_", "PATH", "PY", "SPARK_", "SSL_", "TMP", "TEMP", "TZ", "USER", "VIRTUAL_ENV", "XDG_",
)  # fmt: skip
"""Beginnings of the names of variables that are no secrets."""


def public_variables() -> Mapping[str, str]:
    """The variables of this process that processes with users' code may have, which need them to run at all."""
    return {name: value for name, value in os.environ.items() if name.startswith(_PUBLIC)}


def limit_memory(above_bytes: int) -> None:
    """Limit what this process may allocate beyond what it has now; further allocations raise MemoryError."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    wanted = pages * resource.getpagesize() + above_bytes
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft == resource.RLIM_INFINITY or wanted < soft:
        resource.setrlimit(resource.RLIMIT_AS, (wanted, hard))
