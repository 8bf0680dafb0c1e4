"""Limits of processes that run users' functions or read users' files: few variables, and bounded memory."""

import contextlib
import os
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_PUBLIC: Final = frozenset(
    {
        "HIFI_COMPILED", "HIFI_PIPES_FUNCTION_FOLDERS", "HOME", "HOSTNAME", "JAVA_HOME", "LANG", "LANGUAGE",
        "LD_LIBRARY_PATH", "LOGNAME", "OMP_NUM_THREADS", "PATH", "PYSPARK_DRIVER_PYTHON", "PYSPARK_PYTHON",
        "PYSPARK_SUBMIT_ARGS", "PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "PYTHONHOME", "PYTHONPATH",
        "PYTHONUNBUFFERED", "PYTHONWARNINGS", "SHELL", "SPARK_CONF_DIR", "SPARK_HOME", "SPARK_LOCAL_DIRS",
        "SPARK_LOCAL_IP", "SPARK_SCALA_VERSION", "SSL_CERT_DIR", "SSL_CERT_FILE", "TEMP", "TMP", "TMPDIR", "TZ", "USER",
        "VIRTUAL_ENV",
    }
)  # fmt: skip
_LOCALE: Final = "LC_"
_FIRST_TO_END: Final = "1000"
"""Score for the kernel, when the memory of the machine or the container is used up."""


def public_variables() -> Mapping[str, str]:
    """The variables of this process that processes with users' code may have: those that Python and Java need."""
    return {name: value for name, value in os.environ.items() if name in _PUBLIC or name.startswith(_LOCALE)}


def limit_memory(above_bytes: int) -> None:
    """Limit what this process may allocate beyond what it has now; further allocations raise MemoryError.

    If the machine or the container has less memory, the kernel ends this process before the one that started it.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_TO_END)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit_bytes = pages * resource.getpagesize() + above_bytes
    soft_limit, hard_limit = resource.getrlimit(resource.RLIMIT_AS)
    if soft_limit == resource.RLIM_INFINITY or limit_bytes < soft_limit:
        resource.setrlimit(resource.RLIMIT_AS, (limit_bytes, hard_limit))
