"""Becomes another program that dies with the process which launched it.

Run as a file by `hifi_infra.process.process`, isolated (`python -I -S`), about 10 ms before the program itself:
a `preexec_fn` would run Python between fork and exec, which may deadlock where there are threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    """`launch.py PARENT PROGRAM ARGUMENT...`: PARENT is the process id of who must outlive the program."""
    parent, program = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above: no signal will come any more
        sys.exit(128 + signal.SIGKILL)
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec would pass that on
        signal.signal(ignored, signal.SIG_DFL)
    os.execvp(program[0], program)  # noqa: S606  # no shell is wanted


main()
