"""The program that reads objects: its parsers may end it or use up its memory, and collect goes on.

    python -m hifi_objects.source.rows.worker DESCRIPTOR BYTES

DESCRIPTOR is the connection to collect, BYTES the memory that it may allocate above what it has at the start.
"""

import ctypes
import os
import signal
import socket
import sys
from typing import Final

import pyarrow as pa
from pyarrow import parquet  # noqa: F401 - what is imported later counts towards the limit of memory

from hifi.runtime.process.user_code import limit_memory
from hifi_objects.source.rows.batches import RowBatches
from hifi_objects.source.rows.binary import tolerate_bad_values
from hifi_objects.source.rows.messages import (
    Answer,
    FileFailed,
    NextRows,
    OpenRequest,
    Rows,
    receive_request,
    send,
)

_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


class _OpenFile:
    """The object that is read."""

    def __init__(self, message: OpenRequest, descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        self._descriptor = os.dup(descriptor)  # readers of compressed files close theirs at the end
        self._file = os.fdopen(descriptor, "rb")
        self._batches = RowBatches(message.form, self._file, message.path, message.skip)

    def close(self) -> None:
        """Close the file."""
        self._file.close()
        os.close(self._descriptor)

    def next(self, message: NextRows) -> Answer:
        """The answer to a request for rows."""
        try:
            rows = self._batches.next(message.limit, message.through)
            read_bytes = os.lseek(self._descriptor, 0, os.SEEK_CUR)
        except OSError as error:
            return FileFailed(error.errno or 0, str(error.strerror or error))
        content = [(row.number, row.data, row.reason, row.detail) for row in rows]
        return Rows(content, read_bytes, self._batches.complete)


def main() -> None:
    """Serve until collect closes the connection."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # collect ends first
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pa.set_cpu_count(1)
    tolerate_bad_values()
    limit_memory(int(sys.argv[2]))
    open_file: _OpenFile | None = None
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        send(connection, Rows([], 0, complete=False))  # it has started
        while True:
            message, descriptor = receive_request(connection)
            if message is None:
                return
            if isinstance(message, OpenRequest):
                if open_file is not None:
                    open_file.close()
                assert descriptor is not None
                open_file = _OpenFile(message, descriptor)
            else:
                assert open_file is not None
                send(connection, open_file.next(message))


if __name__ == "__main__":
    main()
