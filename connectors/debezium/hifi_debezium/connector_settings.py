"""The settings of Debezium's connector that a pipe may set, and the form of each value. Pure.

Kafka Connect imports the classes that settings name, and replaces `${…}` by the content of files. Settings that name a
class, a file or SQL are not listed, nor those that write to other topics or leave changes out.
"""

import re
from collections.abc import Mapping
from typing import Final

from hifi.pipe.text_form import refuse_text

_NUMBER: Final = r"\d{1,12}"
_FLAG: Final = r"true|false"
_NAMES: Final = r"[A-Za-z0-9_$.,\\*()|?+\[\] -]+"
"""Names and regular expressions of names."""

SETTINGS: Final[Mapping[str, str]] = {
    "column.exclude.list": _NAMES,
    "column.include.list": _NAMES,
    "database.tcpKeepAlive": _FLAG,
    "errors.max.retries": r"-?\d{1,9}",
    "heartbeat.interval.ms": _NUMBER,
    "lsn.flush.timeout.ms": _NUMBER,
    "max.batch.size": _NUMBER,
    "max.queue.size": _NUMBER,
    "max.queue.size.in.bytes": _NUMBER,
    "money.fraction.digits": _NUMBER,
    "poll.interval.ms": _NUMBER,
    "retriable.restart.connector.wait.ms": _NUMBER,
    "schema.refresh.mode": r"columns_diff|columns_diff_exclude_unchanged_toast",
    "slot.max.retries": _NUMBER,
    "slot.retry.delay.ms": _NUMBER,
    "snapshot.delay.ms": _NUMBER,
    "snapshot.fetch.size": _NUMBER,
    "snapshot.include.collection.list": _NAMES,
    "snapshot.isolation.mode": r"serializable|repeatable_read",
    "snapshot.lock.timeout.ms": _NUMBER,
    "snapshot.locking.mode": r"none|shared",
    "snapshot.max.threads": _NUMBER,
    "snapshot.mode": r"always|initial|initial_only|no_data|when_needed",
    "status.update.interval.ms": _NUMBER,
    "streaming.delay.ms": _NUMBER,
    "xmin.fetch.interval.ms": _NUMBER,
}
"""Name of each setting that a pipe may set, and the form of its value."""


def refuse_setting(name: str, value: str) -> str | None:
    """The reason why a pipe may not set a setting of the connector to a value; None: it may."""
    pattern = SETTINGS.get(name)
    if pattern is None:
        return f"the setting {name!r} of the connector is not allowed; allowed are {', '.join(SETTINGS)}"
    if reason := refuse_text(value):
        return f"the setting {name}: {reason}"
    if not re.fullmatch(pattern, value):
        return f"the value {value[:60]!r} of the setting {name} has not its form, {pattern}"
    return None
