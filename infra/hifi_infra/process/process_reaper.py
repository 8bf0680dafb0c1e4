"""Kills process groups when the process that started them is gone, however it went.

Run as a file by `hifi_infra.process.process`, isolated (`python -I -S`), once for each process that supervises.
Its standard input is a pipe that only the supervisor holds: `+PGID` and `-PGID` lines say which groups live,
and the end of the pipe says that the supervisor does not.
The kernel's parent-death signal reaches direct children only; this reaches the JVM behind a Spark driver.
"""

import contextlib
import os
import signal
import sys


def main() -> None:
    """Reads lines until the pipe ends, then kills what is still listed."""
    groups: set[int] = set()
    for line in sys.stdin:
        group = int(line[1:])
        if line[0] == "+":
            groups.add(group)
        else:
            groups.discard(group)
    for group in groups:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)


main()
