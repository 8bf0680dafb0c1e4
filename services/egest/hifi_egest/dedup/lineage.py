"""What identifies the copies of a record: its key, and its rank on the line that it came along. Pure.

The key is that of the work that the record asks for. The line is one on which ranks ascend: `raw`, or a retry tier. The
rank is the offset of the record where the line starts. Without a line the key alone identifies copies.
"""

from collections.abc import Mapping
from typing import Final

from hifi.record.event import DESTINATION, PASS, REPLAY, RETRY, SEQ

RAW_LINE: Final = "raw"
"""The line of `enriched`; its ranks are offsets in the topic `raw`."""


def replay_lineage(
    seq: bytes, raw: int, replay: bytes | None, service: bytes | None
) -> tuple[bytes, str | None]:
    """Key and line of a record of `enriched` that may be a replay.

    Args:
        seq: identity of the event.
        raw: its offset in `raw`; -1: unknown.
        replay: how often it was replayed; None: it is no replay.
        service: that refused it before its last replay; None: it is no replay.
    """
    key = seq if replay is None or replay == b"0" else b"%b~%b" % (seq, replay)
    # A replay that re-entered at enrich has its old offset in `raw`: only its key identifies copies.
    return key, RAW_LINE if raw >= 0 and (replay is None or service != b"enrich") else None


def retry_line(found: Mapping[str, bytes]) -> tuple[str | None, int]:
    """Line and rank of a record of `retry-out`; `found`: its fields (`hifi.record.event.fields`)."""
    tier, _, offset = found.get(RETRY, b"").decode("utf-8", "replace").rpartition(":")
    return (tier, int(offset)) if tier and offset.isdigit() else (None, 0)


def work_key(source: str, found: Mapping[str, bytes]) -> bytes:
    """Identify the work of a record: an event on `enriched`, a retry pass of a delivery on `retry-out`.

    Args:
        source: `enriched` or `retry-out`.
        found: fields of the record, or of the receipt for it (`hifi.record.event.fields`), among them the identity.
    """
    replay = found.get(REPLAY, b"0")
    if source == "enriched":
        return found[SEQ] if replay == b"0" else b"%b~%b" % (found[SEQ], replay)
    return b"~".join((found[SEQ], replay, found.get(DESTINATION, b""), found.get(PASS, b"0")))
