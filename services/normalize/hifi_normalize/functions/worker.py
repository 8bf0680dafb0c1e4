"""The program of a worker: calls one function on the data of one event after the other.

    python -m hifi_normalize.functions.worker MODULE:FUNCTION BYTES

BYTES is the memory that it may allocate above what it has at the start. What the function prints goes to the standard
error of normalize.
"""

import ctypes
import os
import signal
import sys

from hifi.runtime.errors import Misconfigured, Rejected
from hifi.runtime.process.user_code import limit_memory
from hifi_normalize.functions.frames import HEADER, READY, REJECTED, RESULT, UNUSABLE, frame
from hifi_normalize.functions.user_function import load_function

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> None:
    """Serve until the standard input ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    path, memory_bytes = sys.argv[1], int(sys.argv[2])
    calls, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    limit_memory(memory_bytes)
    try:
        function = load_function(path)
    except Misconfigured as error:
        answers.write(frame(UNUSABLE, str(error).encode()))
        answers.flush()
        return
    answers.write(frame(READY, b""))
    answers.flush()
    worker_pid = os.getpid()
    while header := calls.read(HEADER.size):
        _, number, length = HEADER.unpack(header)
        data = calls.read(length)
        try:
            answer = frame(RESULT, function(data), number)
        except Rejected as why:
            answer = frame(REJECTED, f"{why.reason}\0{why.detail}".encode(), number)
        if os.getpid() != worker_pid:
            os._exit(0)  # the function forked, and this is the child
        answers.write(answer)
        answers.flush()


if __name__ == "__main__":
    main()
