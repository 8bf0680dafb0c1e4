"""The identity that copies of a record share: its key, and its offset in the log that it comes from. Pure.

The key is that of the work that the record asks for. The log is `raw` or a retry topic. Without a log the key alone
identifies copies.
"""

from collections.abc import Mapping
from typing import Final

from hifi.record.headers import DESTINATION, PASS, REPLAY, RETRY, SEQ
from hifi.record.packed_text import is_number

RAW_LOG: Final = "raw"
"""The log of `enriched`: offsets are those in the topic `raw`."""
_LOG_BYTES: Final = 64
"""A tier, `@` and the generation of its topic have fewer."""


def replay_key(
    seq: bytes, raw: int, replay: bytes | None, service: bytes | None, destination: bytes
) -> tuple[bytes, str | None]:
    """Key and log of a record of `enriched` that may be a replay.

    Args:
        seq: identity of the event.
        raw: its offset in `raw`; -1: unknown.
        replay: how often it was replayed; None: it is no replay.
        service: that refused it before its last replay; None: it is no replay.
        destination: the first one that wants it; empty: none does.
    """
    # A replay that re-entered at enrich has its old offset in `raw`: only its key identifies copies.
    return _event_key(seq, replay or b"0", destination), RAW_LOG if raw >= 0 and (
        replay is None or service == b"normalize"
    ) else None


def retry_log(record_fields: Mapping[str, bytes]) -> tuple[str | None, int]:
    """Log and offset there of a record of `retry-out`; `record_fields`: see `hifi.record.fields`.

    Returns:
        None and 0 where the record names none that fits into a commit's metadata: no retrier wrote it.
    """
    log, _, offset = record_fields.get(RETRY, b"").rpartition(b":")
    if not 0 < len(log) <= _LOG_BYTES or not is_number(offset):
        return None, 0
    return log.decode("utf-8", "replace"), int(offset)


def work_key(source: str, record_fields: Mapping[str, bytes]) -> bytes:
    """Identify the work of a record: an event on `enriched`, a retry pass of a delivery on `retry-out`.

    Args:
        source: `enriched` or `retry-out`.
        record_fields: of the record, or of the receipt for it (`hifi.record.fields`), among them the identity.
    """
    seq, replay = record_fields[SEQ], record_fields.get(REPLAY, b"0")
    destination = record_fields.get(DESTINATION, b"")
    if source == "enriched":
        return _event_key(seq, replay, destination)
    return b"~".join((seq, replay, destination, record_fields.get(PASS, b"0")))


def _event_key(seq: bytes, replay: bytes, destination: bytes) -> bytes:
    """The key of an event on `enriched`.

    Two letters of an event, of different destinations, are replayed as two records with the same number of the replay.
    """
    return seq if replay == b"0" else b"~".join((seq, replay, destination))
