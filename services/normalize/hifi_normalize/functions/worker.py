"""The program of a worker: calls one function on the data of one event after the other.

    python -m hifi_normalize.functions.worker MODULE:FUNCTION BYTES

BYTES is the memory that it may allocate in addition to its memory at the start. Output of the function goes to the
standard error of normalize.
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
    call_stream, answer_stream = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    limit_memory(memory_bytes)
    try:
        function = load_function(path)
    except Misconfigured as error:
        answer_stream.write(frame(UNUSABLE, str(error).encode()))
        answer_stream.flush()
        return
    answer_stream.write(frame(READY, b""))
    answer_stream.flush()
    worker_pid = os.getpid()
    while header := call_stream.read(HEADER.size):
        _, number, length = HEADER.unpack(header)
        data = call_stream.read(length)
        try:
            answer = frame(RESULT, function(data), number)
        except Rejected as rejection:
            answer = frame(REJECTED, f"{rejection.reason}\0{rejection.detail}".encode(), number)
        if os.getpid() != worker_pid:
            os._exit(0)  # the function forked, and this is the child
        answer_stream.write(answer)
        answer_stream.flush()


if __name__ == "__main__":
    main()
