"""Records of `retry-out` that fit into it."""

from hifi.kafka.producer import is_sendable
from hifi.record.record import Record
from hifi.runtime.errors import Rejected


def sendable(record: Record) -> Record:
    """The record.

    Raises:
        Rejected: no topic can hold it.
    """
    if not is_sendable(record):
        raise Rejected("too-large", "with the fields of the retrier, no topic can hold it")
    return record
