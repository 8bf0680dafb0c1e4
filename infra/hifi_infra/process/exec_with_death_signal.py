"""Replaces itself with another program that the kernel kills when the parent process ends.

`hifi_infra.process.process` runs this file, isolated (`python -I -S`), about 10 ms before the program itself. A
`preexec_fn` would run Python between fork and exec, which may deadlock in a process with threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    """`exec_with_death_signal.py PARENT PROGRAM ARGUMENT...`: PARENT is the id of the parent process."""
    parent, program = int(sys.argv[1]), sys.argv[2:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # the parent ended before prctl: the kernel will send no signal
        sys.exit(128 + signal.SIGKILL)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and exec would pass that on
        signal.signal(number, signal.SIG_DFL)
    os.execvp(program[0], program)  # noqa: S606 - no shell is wanted


main()
