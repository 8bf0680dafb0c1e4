"""The watermark of a pipe and destination as a CloudEvent, which egest sends beside the events of the pipe."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import orjson
from aiokafka import ConsumerRecord

from hifi.record.headers import CE_PREFIX, CONTENT_TYPE, IDENTITY
from hifi.runtime.clock import MICROSECONDS
from hifi.runtime.errors import Rejected

WATERMARK_TYPE: Final = "hifi.watermark"
_TYPE: Final = f"{CE_PREFIX}type"


def watermark_event(stream: str, log: str, statement: Mapping[str, Any], now_us: int) -> ConsumerRecord:
    """The event as a record without hifi's header, which every event of a pipe has.

    Args:
        stream: name.
        log: identity of the stream's log, of whose events the statement is.
        statement: as observe published it.
        now_us: microseconds since 1970 UTC; after `valid_until` of the statement its verdict is `unknown`.
    """
    data = {**statement, "log": log}
    if now_us > datetime.fromisoformat(statement["valid_until"]).timestamp() * MICROSECONDS:
        data |= {"verdict": "unknown", "because": [f"observe has stated nothing since {statement['as_of']}"]}
    subject = f"{statement['pipe']}/{statement['destination']}"
    attributes = {
        "specversion": "1.0",
        "id": f"{subject}/{statement['as_of']}",
        "source": f"/hifi/{stream}",
        "type": WATERMARK_TYPE,
        "subject": subject,
        "time": statement["as_of"],
    }
    headers = [(CE_PREFIX + name, value.encode()) for name, value in attributes.items()]
    value = orjson.dumps(data)
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
    """Whether a record is a watermark, for a destination that asks for it.

    Raises:
        Rejected: it is an event whose sender gave it the type of a watermark.
    """
    headers = dict(record.headers)
    if headers.get(_TYPE) != WATERMARK_TYPE.encode():
        return False
    if IDENTITY in headers:
        raise Rejected(
            "reserved-type",
            f"the destination asks for watermarks, so no event of the pipe may have their type {WATERMARK_TYPE}",
        )
    return True
