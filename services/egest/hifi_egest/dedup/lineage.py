"""What identifies the copies of a record: its key, and its rank on the line that it came along. Pure."""

from collections.abc import Mapping
from typing import NamedTuple

from hifi.event import DESTINATION, PASS, RAW, REPLAY, RETRY, SEQ, SERVICE, number


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


def lineage(source: str, headers: Mapping[str, bytes]) -> Lineage:
    """Where a record of a source comes from.

    Args:
        source: `enriched` or `retry-out`.
        headers: of the record.

    Raises:
        NotAnEvent: a header of hifi is malformed.
    """
    line, rank = None, 0
    if source == "enriched":
        # A replay that re-entered at enrich has its old offset in `raw`: only its key identifies copies.
        if RAW in headers and not (REPLAY in headers and headers.get(SERVICE) == b"enrich"):
            line, rank = "raw", number(headers, RAW)
    elif RETRY in headers:
        tier, _, offset = headers[RETRY].decode("utf-8", "replace").rpartition(":")
        if tier and offset.isdigit():
            line, rank = tier, int(offset)
    return Lineage(work_key(source, headers), line, rank)


def work_key(source: str, headers: Mapping[str, bytes]) -> bytes:
    """Identify the work of a record: an event on `enriched`, a retry pass of a delivery on `retry-out`."""
    replay = headers.get(REPLAY, b"0")
    if source == "enriched":
        return headers[SEQ] if replay == b"0" else b"%b~%b" % (headers[SEQ], replay)
    return b"~".join((headers[SEQ], replay, headers.get(DESTINATION, b""), headers.get(PASS, b"0")))
