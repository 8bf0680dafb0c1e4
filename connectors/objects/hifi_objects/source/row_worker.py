"""Read the rows of objects in a process of their own, which is started again after a parser has ended it."""

import signal
import socket
import subprocess
import sys
from typing import BinaryIO, Final

from hifi.runtime.errors import HifiError, Retryable
from hifi.runtime.process.user_code import public_variables
from hifi_objects.source.rows.messages import (
    FileFailed,
    NextRows,
    OpenRequest,
    Rows,
    receive_answer,
    send,
)
from hifi_objects.source.rows.row_format import RowFormat

_ANSWER_S: Final = 60.0
"""Longest time for one row, seconds; the worker answers every few seconds while it makes progress."""

_START_S: Final = 120.0
"""Longest time for starting Python and importing the parsers, seconds."""


class WorkerDied(HifiError):
    """The worker has ended, or took too long for a row and was ended."""


class RowWorker:
    """One worker. After `WorkerDied` the next `open` starts another one. Its methods block."""

    def __init__(self, memory_bytes: int, answer_s: float = _ANSWER_S) -> None:
        """Start nothing yet.

        Args:
            memory_bytes: that it may allocate above what it has at the start.
            answer_s: longest time for one row, seconds.
        """
        self._memory_bytes = memory_bytes
        self._answer_s = answer_s
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None

    def open(self, row_format: RowFormat, file: BinaryIO, path: str, skip: int) -> None:
        """Begin an object; the arguments are those of `RowBatches`.

        Raises:
            WorkerDied: see there.
            Retryable: the worker cannot be started, which is not due to the object.
        """
        connection = self._connection or self._start()
        file.flush()
        try:
            send(connection, OpenRequest(row_format, path, skip), file.fileno())
        except OSError:
            raise self._died() from None

    def next(self, limit: int, last_row: int | None) -> Rows:
        """The next rows of the object, possibly none.

        Args:
            limit: largest number of rows.
            last_row: number of the last row to return; None: no matter which.

        Raises:
            WorkerDied: see there.
            OSError: the file cannot be read; it may be possible later.
        """
        assert self._connection is not None
        try:
            send(self._connection, NextRows(limit, last_row))
            answer = receive_answer(self._connection)
        except TimeoutError:
            self.kill()
            raise self._died(f"took longer than {self._answer_s:g} s for a row") from None
        except (OSError, EOFError):
            raise self._died() from None
        if isinstance(answer, FileFailed):
            raise OSError(answer.errno, answer.text)
        return answer

    def kill(self) -> None:
        """End the process at once; another thread that waits for it gets `WorkerDied`."""
        if self._process is not None:
            self._process.kill()

    def close(self) -> None:
        """End the process, and wait for it."""
        process, self._process = self._process, None
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        if process is not None:
            process.kill()
            process.wait()

    def _start(self) -> socket.socket:
        connection, remote = socket.socketpair()
        with remote:
            descriptor = remote.fileno()
            program = [sys.executable, "-P", "-m", "hifi_objects.source.rows.worker"]
            try:
                self._process = subprocess.Popen(  # noqa: S603 - this interpreter with a module of hifi
                    [*program, str(descriptor), str(self._memory_bytes)],
                    pass_fds=[descriptor],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    env={
                        **public_variables(),
                        "ARROW_DEFAULT_MEMORY_POOL": "system",
                        "MALLOC_ARENA_MAX": "1",
                    },
                )
            except OSError as error:
                connection.close()
                raise Retryable(f"the process that reads objects cannot be started: {error}") from error
        self._connection = connection
        connection.settimeout(_START_S)
        try:
            receive_answer(connection)
        except (OSError, EOFError) as error:
            self.close()
            raise Retryable(f"the process that reads objects does not start ({error!r})") from error
        connection.settimeout(self._answer_s)
        return connection

    def _died(self, reason: str = "") -> WorkerDied:
        """The error that says how the process ended; the process is forgotten."""
        process = self._process
        assert process is not None
        if not reason:
            try:
                code = process.wait(self._answer_s)
            except subprocess.TimeoutExpired:
                code = 0
            reason = f"ended with {_signal_name(-code)}" if code < 0 else f"ended with status {code}"
        self.close()
        return WorkerDied(reason)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
