"""What identifies the copies of a record: its key, and its rank on the line that it came along. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from hifi.event import DESTINATION, PASS, REPLAY, RETRY, SEQ


class Lineage(NamedTuple):
    """Where a record comes from.

    Attributes:
        key: of the work that the record asks for; see `work_key`.
        line: on which ranks ascend: `raw`, or the name of a retry tier; None: the key alone identifies copies.
        rank: offset of the record at the start of the line.
    """

    key: bytes
    line: str | None
    rank: int


def enriched_lineage(
    seq: bytes, raw: int, replay: bytes | None = None, service: bytes | None = None
) -> Lineage:
    """Where a record of `enriched` comes from.

    Args:
        seq: identity of the event.
        raw: its offset in `raw`; -1: unknown.
        replay: how often it was replayed; None: it is no replay.
        service: that refused it before its last replay; None: it is no replay.
    """
    key = seq if replay is None or replay == b"0" else b"%b~%b" % (seq, replay)
    # A replay that re-entered at enrich has its old offset in `raw`: only its key identifies copies.
    if raw < 0 or (replay is not None and service == b"enrich"):
        return Lineage(key, None, 0)
    return Lineage(key, "raw", raw)


def retried_lineage(found: Mapping[str, bytes]) -> Lineage:
    """Where a record of `retry-out` comes from; `found`: its fields (`hifi.event.fields`)."""
    line, rank = None, 0
    tier, _, offset = found.get(RETRY, b"").decode("utf-8", "replace").rpartition(":")
    if tier and offset.isdigit():
        line, rank = tier, int(offset)
    return Lineage(work_key("retry-out", found), line, rank)


def work_key(source: str, found: Mapping[str, bytes]) -> bytes:
    """Identify the work of a record: an event on `enriched`, a retry pass of a delivery on `retry-out`.

    Args:
        source: `enriched` or `retry-out`.
        found: fields of the record, or of the receipt for it (`hifi.event.fields`), among them the identity.
    """
    replay = found.get(REPLAY, b"0")
    if source == "enriched":
        return found[SEQ] if replay == b"0" else b"%b~%b" % (found[SEQ], replay)
    return b"~".join((found[SEQ], replay, found.get(DESTINATION, b""), found.get(PASS, b"0")))
