"""Objects of rows, and the offsets that an object has."""

import gzip
import zlib
from collections.abc import Sequence
from typing import Protocol

import orjson

from hifi.runtime import exact_json
from hifi.runtime.errors import Retryable
from hifi_objects.destination.rows import OFFSET, Row


class ObjectFormat(Protocol):
    """A format of objects."""

    def encode(self, rows: Sequence[Row]) -> bytes:
        """The object of some rows, which all can be encoded."""

    def offsets(self, content: bytes) -> list[int]:
        """The offsets of the rows of an object.

        Raises:
            ValueError: it is no object of this format.
        """


class Ndjson:
    """A JSON object in each line, as it is or compressed with gzip."""

    def __init__(self, *, compressed: bool) -> None:
        """Choose the compression.

        Args:
            compressed: with gzip.
        """
        self._compressed = compressed

    def encode(self, rows: Sequence[Row]) -> bytes:
        """The lines of some rows."""
        options = orjson.OPT_APPEND_NEWLINE | orjson.OPT_UTC_Z
        content = b"".join([exact_json.dumps(row, options) for row in rows])
        return gzip.compress(content, compresslevel=6, mtime=0) if self._compressed else content

    def offsets(self, content: bytes) -> list[int]:
        """The offsets in the lines of an object."""
        if self._compressed:
            try:
                content = gzip.decompress(content)
            except (OSError, EOFError, zlib.error) as error:
                raise ValueError(str(error)) from error
        try:
            return [int(exact_json.loads(line)[OFFSET]) for line in content.splitlines()]
        except (KeyError, TypeError) as error:
            raise ValueError(f"a line has no {OFFSET}") from error


def read_offsets(object_format: ObjectFormat, content: bytes, path: str) -> list[int]:
    """The offsets of an object that exists.

    Raises:
        Retryable: the object is damaged, or of another program.
    """
    try:
        return object_format.offsets(content)
    except ValueError as error:  # also pyarrow.ArrowInvalid
        raise Retryable(
            f"the object {path} cannot be read: {error}. Move it away; what it has is then written again"
        ) from error
