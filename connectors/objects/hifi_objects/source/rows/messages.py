"""Messages between collect and the process that reads objects: length (four bytes), content as MessagePack."""

import socket
import struct
from typing import Final, TypeAlias

import msgspec

from hifi_objects.source.rows.row import ObjectRow
from hifi_objects.source.rows.row_format import RowFormat

HEADER: Final = struct.Struct("!I")
_MOST_BYTES: Final = 256 * 1024 * 1024
_DESCRIPTORS: Final = 1


class OpenRequest(msgspec.Struct, tag="open"):
    """Read the file whose descriptor comes with this message."""

    form: RowFormat
    path: str
    skip: int
    """Number of the last row to leave out."""


class NextRows(msgspec.Struct, tag="next"):
    """Answer with rows of the open object."""

    limit: int
    through: int | None


class Rows(msgspec.Struct, tag="rows"):
    """Rows of the open object, each as the arguments of `ObjectRow`."""

    rows: list[tuple[int, bytes | None, str, str]]
    read_bytes: int
    """Of the file, so far."""
    complete: bool
    """Whether the object has no more rows, or none up to `NextRows.through`."""

    def as_rows(self) -> list[ObjectRow]:
        """The rows."""
        return [ObjectRow(*arguments) for arguments in self.rows]


class FileFailed(msgspec.Struct, tag="failed"):
    """The file cannot be read; it may be possible later."""

    errno: int
    text: str


Request: TypeAlias = OpenRequest | NextRows
Answer: TypeAlias = Rows | FileFailed

_encode: Final = msgspec.msgpack.Encoder().encode
_requests: Final = msgspec.msgpack.Decoder(OpenRequest | NextRows)
_answers: Final = msgspec.msgpack.Decoder(Rows | FileFailed)


def send(connection: socket.socket, message: Request | Answer, descriptor: int | None = None) -> None:
    """Send a message, with the descriptor of an open file if there is one."""
    content = _encode(message)
    header = HEADER.pack(len(content))
    if descriptor is None:
        connection.sendall(header + content)
    else:
        socket.send_fds(connection, [header], [descriptor])
        connection.sendall(content)


def receive_request(connection: socket.socket) -> tuple[Request | None, int | None]:
    """The next request, and the descriptor that came with it; None: the other end has closed the connection."""
    header, descriptors, _, _ = socket.recv_fds(connection, HEADER.size, _DESCRIPTORS)
    if not header:
        return None, None
    header += _exactly(connection, HEADER.size - len(header))
    content = _exactly(connection, HEADER.unpack(header)[0])
    return _requests.decode(content), descriptors[0] if descriptors else None


def receive_answer(connection: socket.socket) -> Answer:
    """The next answer.

    Raises:
        EOFError: the other end has closed the connection, or sends nonsense.
        TimeoutError: it sends nothing in time.
    """
    (length,) = HEADER.unpack(_exactly(connection, HEADER.size))
    if length > _MOST_BYTES:
        raise EOFError("the answer is too large")
    answer: Answer = _answers.decode(_exactly(connection, length))
    return answer


def _exactly(connection: socket.socket, size: int) -> bytes:
    content = bytearray(size)
    view, received_bytes = memoryview(content), 0
    while received_bytes < size:
        count = connection.recv_into(view[received_bytes:])
        if not count:
            raise EOFError("the connection was closed")
        received_bytes += count
    return bytes(content)
