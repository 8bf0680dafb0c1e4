"""Kills process groups once the process that started them has ended, for whatever reason.

`hifi_infra.process.parent_death` runs this file, isolated (`python -I -S`), once for each supervising process.
Standard input is a pipe that only the supervisor holds: lines `+PGID` and `-PGID` say which groups run, and the end of
the pipe means that the supervisor has ended. The kernel's parent-death signal reaches direct children only; this
reaches their descendants too, such as the JVM behind a Spark driver.
"""

import contextlib
import os
import signal
import sys


def main() -> None:
    """Read lines until the pipe ends, then kill the groups that are still listed."""
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
