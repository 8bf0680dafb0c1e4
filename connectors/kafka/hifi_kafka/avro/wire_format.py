"""Confluent's wire format: a zero byte, the id of the schema in four bytes, big-endian, and the Avro value. Pure."""

import struct
from typing import Final

from hifi.runtime.errors import Rejected

_HEADER: Final = struct.Struct(">bI")
_MAGIC: Final = 0
_MOST_ID: Final = 2**31 - 1
"""Ids of registries are positive integers with a sign: of others no registry has a schema."""


def schema_id(message: bytes) -> int:
    """Id of the schema of a message.

    Raises:
        Rejected: it is not in the wire format.
    """
    if len(message) < _HEADER.size:
        raise Rejected("not-avro", f"{len(message)} bytes are too short for Avro in Confluent's wire format")
    magic, registry_id = _HEADER.unpack_from(message)
    if magic != _MAGIC:
        raise Rejected(
            "not-avro", f"it begins with the byte {magic & 0xFF}, not with 0 and the id of a schema"
        )
    if registry_id > _MOST_ID:
        raise Rejected(
            "not-avro",
            f"the id of its schema would be {registry_id}; that of a registry is at most {_MOST_ID}",
        )
    return int(registry_id)


def payload(message: bytes) -> bytes:
    """The Avro value of a message that `schema_id` accepts."""
    return message[_HEADER.size :]


def header(schema: int) -> bytes:
    """The bytes before a value with the schema of this id."""
    return _HEADER.pack(_MAGIC, schema)
