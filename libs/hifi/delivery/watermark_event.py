"""The watermark of a pipe and destination as a CloudEvent, which egest sends beside the events of the pipe."""

from collections.abc import Mapping
from typing import Any, Final

import orjson
from aiokafka import ConsumerRecord

from hifi.record.cloudevents.attributes import RESERVED_TYPE
from hifi.record.headers import CE_PREFIX, CONTENT_TYPE

_TYPE: Final = f"{CE_PREFIX}type"
_STATEMENT_KEYS: Final = (
    "pipe",
    "destination",
    "settled_until",
    "first_pass_until",
    "event_until",
    "event_as_of",
    "open",
    "verdict",
    "because",
    "as_of",
    "valid_until",
)
"""Members of the statement that a destination gets: nothing of other destinations and other pipes."""


def watermark_event(stream: str, log: str, statement: Mapping[str, Any]) -> ConsumerRecord:
    """The event as a record.

    Args:
        stream: name.
        log: identity of the stream's log, of whose events the statement is.
        statement: as observe published it.

    Raises:
        KeyError: it is not as this release writes it.
    """
    subject = f"{statement['pipe']}/{statement['destination']}"
    attributes = {
        "specversion": "1.0",
        "id": f"{log}/{subject}/{statement['as_of']}",
        "source": f"/hifi/{stream}",
        "type": RESERVED_TYPE,
        "subject": subject,
        "time": statement["as_of"],
    }
    headers = [(CE_PREFIX + name, value.encode()) for name, value in attributes.items()]
    value = orjson.dumps({name: statement[name] for name in _STATEMENT_KEYS} | {"log": log})
    return ConsumerRecord(
        topic="",
        partition=0,
        offset=-1,
        timestamp=-1,
        timestamp_type=0,
        key=subject.encode(),
        value=value,
        checksum=None,
        serialized_key_size=len(subject),
        serialized_value_size=len(value),
        headers=(*headers, (CONTENT_TYPE, b"application/json")),
    )


def is_watermark(record: ConsumerRecord) -> bool:
    """Whether a record is a watermark rather than an event."""
    return dict(record.headers).get(_TYPE) == RESERVED_TYPE.encode()
