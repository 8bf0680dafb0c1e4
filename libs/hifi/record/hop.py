"""The header `hifi_hop`, which every record has second and which each service writes anew. Pure.

<in>[;<raw>[;<to>[;<watch>[;<index>[;<stamp>]]]]]
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from hifi.record.headers import HOP, IN, INDEX, RAW, STAMP, TO, WATCH
from hifi.record.packed_text import SEPARATOR, is_number
from hifi.runtime.errors import NotAnEvent

HOP_FIELDS: Final = (IN, RAW, TO, WATCH, INDEX, STAMP)
"""The fields in order. The last ones are left out where they are empty."""

# Places of the fields in what `split_hop` returns.
IN_AT: Final = HOP_FIELDS.index(IN)
RAW_AT: Final = HOP_FIELDS.index(RAW)
TO_AT: Final = HOP_FIELDS.index(TO)
WATCH_AT: Final = HOP_FIELDS.index(WATCH)
INDEX_AT: Final = HOP_FIELDS.index(INDEX)
STAMP_AT: Final = HOP_FIELDS.index(STAMP)


class Hop(NamedTuple):
    """The fields that the service that wrote a record adds to it."""

    in_us: int
    """When that service fetched its input, microseconds since 1970 UTC."""
    raw: int = -1
    """Offset of the event in `raw`; -1: unknown, or the record is on `raw` itself."""
    to: bytes | None = None
    """See `TO`; None: the record is not on `enriched`."""
    watch: bytes | None = None
    """See `WATCH`; None: the pipe watches nothing."""
    event_index: int = 0
    """See `INDEX`."""
    stamp_ms: int | None = None
    """See `STAMP`; None: there is none."""


_NEW: Final = tuple.__new__
"""Makes a `Hop` in a third of the time that its constructor takes, which is interpreted."""


def hop_text(in_us: int, raw: int = -1) -> bytes:
    """The value of the header of a record that is not on `enriched`; the arguments are those of `Hop`."""
    return b"%d;%d" % (in_us, raw) if raw >= 0 else b"%d;" % in_us


def write_first_hop(in_us: int) -> tuple[str, bytes]:
    """The header of a record on `raw`; `in_us`: see `Hop`."""
    return HOP, b"%d" % in_us


def write_hop(in_us: int, raw: int) -> tuple[str, bytes]:
    """The header of a record that is neither on `raw` nor on `enriched`; the arguments are those of `Hop`."""
    return HOP, hop_text(in_us, raw)


def write_stamped_hop(in_us: int, raw: int, stamp_ms: int | None) -> tuple[str, bytes]:
    """The header of a record on `normalized` whose pipe a step reads; the arguments are those of `Hop`."""
    text = hop_text(in_us, raw)
    return HOP, text if stamp_ms is None else b"%b;;;;%d" % (text, stamp_ms)


def write_enriched_hop(in_us: int, raw: int, to: bytes) -> tuple[str, bytes]:
    """The header of a record on `enriched` whose pipe watches nothing; the arguments are those of `Hop`.

    enrich itself writes it as SQL: see `hifi.record.spark_sql`.
    """
    return HOP, b"%b;%b" % (hop_text(in_us, raw), to)


def hop_header(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """The value of the header, without a check of its content.

    Args:
        headers: of a record, in their order.

    Raises:
        NotAnEvent: the second header is another one, or has no value.
    """
    if len(headers) > 1:
        name, header = headers[1]
        if name == HOP and header is not None:
            return header
    raise NotAnEvent(f"the second header is not {HOP}, or has no value")


def split_hop(header: bytes) -> list[bytes]:
    """Check the value of a header and split it into its fields, of which the last ones may be missing.

    Raises:
        NotAnEvent: it is malformed.
    """
    texts = header.split(SEPARATOR)
    if (
        not is_number(texts[IN_AT])
        or (len(texts) > RAW_AT and texts[RAW_AT] and not is_number(texts[RAW_AT]))
        or (len(texts) > INDEX_AT and not _are_numbers_or_empty(texts[INDEX_AT : STAMP_AT + 1]))
        or not header.isascii()
    ):
        raise NotAnEvent(f"the header {HOP} is malformed")
    return texts


def _are_numbers_or_empty(texts: Sequence[bytes]) -> bool:
    return all(not text or is_number(text) for text in texts)


def split_hop_unchecked(headers: Sequence[tuple[str, bytes | None]]) -> list[bytes]:
    """The fields of the header of a record with two headers or more, whatever they say, for a count of records.

    Returns:
        The fields as they are; a single empty one where the second header is another one, or has no value.
    """
    name, header = headers[1]
    return header.split(SEPARATOR) if name == HOP and header is not None else [b""]


def raw_offset(texts: Sequence[bytes], default: int) -> int:
    """The offset in `raw` of split fields; `default` where it is missing or malformed."""
    return int(texts[RAW_AT]) if len(texts) > RAW_AT and is_number(texts[RAW_AT]) else default


def hop(headers: Sequence[tuple[str, bytes | None]]) -> Hop:
    """Read the header. Fields that a later release appended are skipped.

    Args:
        headers: of a record, in their order.

    Raises:
        NotAnEvent: it is missing or malformed.
    """
    texts = split_hop(hop_header(headers))
    count = len(texts)
    raw = int(texts[RAW_AT]) if count > RAW_AT and texts[RAW_AT] else -1
    destinations = texts[TO_AT] if count > TO_AT else None
    watch = texts[WATCH_AT] if count > WATCH_AT else None
    index = int(texts[INDEX_AT]) if count > INDEX_AT and texts[INDEX_AT] else 0
    stamp_ms = int(texts[STAMP_AT]) if count > STAMP_AT and texts[STAMP_AT] else None
    return _NEW(Hop, (int(texts[IN_AT]), raw, destinations, watch, index, stamp_ms))
