"""The header `hifi`, which every record has first and which services copy byte for byte. Pure.

    <format>;<pipe>;<revision>;<its offset>;<accepted>;<minute>;<epoch>:<sequence>[;<origin>[;<kind>[;<log>]]]

This module is the one place of the version and of the order of the fields; `hifi.record.spark_sql` derives its SQL from
the constants below. The parts of a request's events that are equal are written and read once: see `identity_prefix`
and `IdentityReader`.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, final

from hifi.record.headers import (
    ACCEPTED,
    IDENTITY,
    KIND,
    LOG,
    MINUTE,
    ORIGIN,
    PIPE,
    REFUSED,
    REVISION,
    REVISION_OFFSET,
    SEQ,
    Headers,
)
from hifi.record.packed_text import MAX_DIGITS, SEPARATOR, is_number_up_to
from hifi.record.refusal import parse_refusal
from hifi.runtime.errors import NotAnEvent

FORMAT: Final = 2
"""The version of the packed headers, with which the header `hifi` begins."""
FORMAT_TEXT: Final = b"%d" % FORMAT
IDENTITY_FIELDS: Final = (PIPE, REVISION, REVISION_OFFSET, ACCEPTED, MINUTE, SEQ)
"""The fields after the version, in order."""
OPTIONAL_FIELDS: Final = (ORIGIN, KIND, LOG)
"""The fields after those, in order, of which the last ones are left out where they are empty."""
BACKFILL: Final = b"backfill"
"""The value of `ORIGIN`."""
EPOCH_DIGITS: Final = 16
MAX_SEQUENCE_DIGITS: Final = 19
"""A sequence has up to 63 bits."""
LAST_ACCEPTED: Final = b"253402300799999999"
"""The highest time of acceptance: the end of the year 9999, microseconds since 1970 UTC."""
LAST_MINUTE: Final = b"4223371679"
"""The last minute of the year 9999, minutes since 1970 UTC."""

# Places of the fields in what `split_identity` returns.
PIPE_AT: Final = 1 + IDENTITY_FIELDS.index(PIPE)
REVISION_AT: Final = 1 + IDENTITY_FIELDS.index(REVISION)
REVISION_OFFSET_AT: Final = 1 + IDENTITY_FIELDS.index(REVISION_OFFSET)
ACCEPTED_AT: Final = 1 + IDENTITY_FIELDS.index(ACCEPTED)
MINUTE_AT: Final = 1 + IDENTITY_FIELDS.index(MINUTE)
SEQ_AT: Final = 1 + IDENTITY_FIELDS.index(SEQ)
ORIGIN_AT: Final = 1 + len(IDENTITY_FIELDS) + OPTIONAL_FIELDS.index(ORIGIN)
KIND_AT: Final = 1 + len(IDENTITY_FIELDS) + OPTIONAL_FIELDS.index(KIND)

_AFTER_HEAD: Final = SEQ_AT - ACCEPTED_AT + 1
"""Fields of a stem from the time of acceptance on."""
_COLON: Final = ord(":")
_BACKFILL_ENDING: Final = SEPARATOR + BACKFILL
_BACKFILL_LENGTH: Final = len(_BACKFILL_ENDING)


class Identity(NamedTuple):
    """The fields that ingest or collect adds to every event."""

    pipe: str
    """Name of the pipe."""
    revision: int
    """See `REVISION`."""
    revision_offset: int
    """See `REVISION_OFFSET`."""
    accepted_us: int
    """Microseconds since 1970 UTC."""
    minute: int
    """Minutes since 1970 UTC."""
    seq: bytes
    """`<epoch as 16 hex digits>:<sequence>`."""


_NEW: Final = tuple.__new__
"""Makes an `Identity` in a third of the time that its constructor takes, which is interpreted."""


# Write.


def seq_text(epoch: int, sequence: int) -> bytes:
    """The identity of an event for a 64-bit epoch and a sequence number."""
    return b"%016x:%d" % (epoch, sequence)


def identity_prefix(pipe: str, revision: int, revision_offset: int, accepted_us: int) -> bytes:
    """The first fields of the header, which the events of a request share."""
    return b"%d;%b;%d;%d;%d;" % (FORMAT, pipe.encode("ascii"), revision, revision_offset, accepted_us)


def identity_stem(prefix: bytes, minute: int, epoch: int) -> bytes:
    """The header up to the sequence, which the events of a request share that belong to one minute and partition.

    Args:
        prefix: from `identity_prefix`.
        minute: that the events count in, minutes since 1970 UTC.
        epoch: of the partition, 64 bits.
    """
    return b"%b%d;%016x:" % (prefix, minute, epoch)


def write_identity(stem: bytes, sequence: int, backfill: bool = False) -> tuple[str, bytes]:
    """The header of an event.

    Args:
        stem: from `identity_stem`.
        sequence: of the event in its epoch.
        backfill: whether collect read the event while it caught up with a source.
    """
    text = b"%b%d" % (stem, sequence)
    return IDENTITY, text + _BACKFILL_ENDING if backfill else text


def with_revision(headers: Headers, revision: int, revision_offset: int) -> Headers:
    """Headers of an event with another revision of its pipe; fields that a later release appended stay.

    Args:
        headers: of a record, in their order, whose header `hifi` is well-formed.
        revision: see `REVISION`.
        revision_offset: see `REVISION_OFFSET`.
    """
    texts = identity_header(headers).split(SEPARATOR)
    texts[REVISION_AT], texts[REVISION_OFFSET_AT] = b"%d" % revision, b"%d" % revision_offset
    return [(IDENTITY, SEPARATOR.join(texts)), *headers[1:]]


# Read.


def identity_header(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    """The value of the header, without a check of its content.

    Args:
        headers: of a record, in their order.

    Raises:
        NotAnEvent: the first header is another one, or has no value, or the record cannot be read
            (`hifi.kafka.own_records`).
    """
    if headers:
        name, header = headers[0]
        if header is not None:
            if name == IDENTITY:
                return header
            if name == REFUSED:
                raise NotAnEvent(parse_refusal(header).detail)
    raise NotAnEvent(f"the first header is not {IDENTITY}, or has no value")


def split_identity(header: bytes) -> list[bytes]:
    """Check the value of a header and split it: the version, its fields in order, and any that were appended.

    Raises:
        NotAnEvent: it is malformed, or its format or kind is not known here.
    """
    texts = header.split(SEPARATOR)
    if texts[0] != FORMAT_TEXT:
        raise NotAnEvent(f"the header {IDENTITY} has a format other than {FORMAT}, which this release reads")
    if len(texts) > KIND_AT and texts[KIND_AT]:
        raise NotAnEvent(f"the header {IDENTITY} has a kind of record that this release does not know")
    if len(texts) > SEQ_AT:
        seq = texts[SEQ_AT]
        if (
            len(seq) > EPOCH_DIGITS
            and seq[EPOCH_DIGITS] == _COLON
            and _are_numbers(texts, seq[EPOCH_DIGITS + 1 :])
            and header.isascii()
        ):
            return texts
    raise NotAnEvent(f"the header {IDENTITY} is malformed")


def _are_numbers(texts: list[bytes], sequence: bytes) -> bool:
    """Whether all fields are whole numbers that have to be; one look at the joined digits is faster than at each."""
    revision, revision_offset, accepted, minute = (
        texts[REVISION_AT],
        texts[REVISION_OFFSET_AT],
        texts[ACCEPTED_AT],
        texts[MINUTE_AT],
    )
    return (
        0 < len(revision) <= MAX_DIGITS
        and 0 < len(revision_offset) <= MAX_DIGITS
        and is_number_up_to(accepted, LAST_ACCEPTED)
        and is_number_up_to(minute, LAST_MINUTE)
        and 0 < len(sequence) <= MAX_SEQUENCE_DIGITS
        and b"".join([revision, revision_offset, sequence]).isdigit()
    )


def parse_identity(header: bytes) -> Identity:
    """Read the value of the header. Fields that a later release appended are skipped.

    Raises:
        NotAnEvent: it is malformed, or its format is not known here.
    """
    texts = split_identity(header)
    return _NEW(
        Identity,
        (
            texts[PIPE_AT].decode("ascii"),
            int(texts[REVISION_AT]),
            int(texts[REVISION_OFFSET_AT]),
            int(texts[ACCEPTED_AT]),
            int(texts[MINUTE_AT]),
            texts[SEQ_AT],
        ),
    )


def identity(headers: Sequence[tuple[str, bytes | None]]) -> Identity:
    """Read the header.

    Args:
        headers: of a record, in their order.

    Raises:
        NotAnEvent: it is missing or malformed, or its format is not known here.
    """
    return parse_identity(identity_header(headers))


@final
class IdentityReader:
    """Reads the headers of many records in a row, of which most differ from the one before only in the sequence.

    Those of the next request differ in the time of acceptance, too.

    Attributes:
        texts: the version and the fields in order, as `split_identity` gives them, but for `SEQ`: see the next two.
        epoch: as 16 hex digits.
        sequence: of the event in its epoch.
        accepted_us: microseconds since 1970 UTC.
        backfill: whether collect read the event while it caught up with a source.
    """

    __slots__ = ("_head", "_stem", "accepted_us", "backfill", "epoch", "sequence", "texts")

    def __init__(self) -> None:
        self._stem = b""
        """The header before up to the sequence, or empty: it was malformed, or has fields that are not known here."""
        self._head = b""
        """The fields of the stem before the time of acceptance."""
        self.texts: list[bytes] = []
        self.epoch = b""
        self.sequence = 0
        self.accepted_us = 0
        self.backfill = False

    def read(self, headers: Sequence[tuple[str, bytes | None]]) -> bool:
        """Read the header of a record.

        Args:
            headers: of the record, in their order.

        Returns:
            Whether more than the sequence and the time of acceptance differs from the header before.

        Raises:
            NotAnEvent: it is missing or malformed, or its format is not known here.
        """
        header = identity_header(headers)
        stem, _, sequence = header.rpartition(b":")
        if self._stem and (stem == self._stem or self._read_accepted(stem)):
            digits = sequence
            if self.backfill:
                digits = sequence[:-_BACKFILL_LENGTH] if sequence.endswith(_BACKFILL_ENDING) else b""
            if len(digits) <= MAX_SEQUENCE_DIGITS and digits.isdigit():
                self.sequence = int(digits)
                return False
        self._stem = b""
        texts = stem.split(SEPARATOR)
        if (
            len(texts) == ORIGIN_AT
            and texts[0] == FORMAT_TEXT
            and len(texts[SEQ_AT]) == EPOCH_DIGITS
            and _are_numbers(texts, sequence)
            and header.isascii()
        ):
            self.texts, self.epoch, self.sequence = texts, texts[SEQ_AT], int(sequence)
            self.backfill = False
            self._stem = stem
        else:
            self._read_odd(header, stem)
        self.accepted_us = int(self.texts[ACCEPTED_AT])
        self._head = self._stem.rsplit(SEPARATOR, _AFTER_HEAD)[0]
        return True

    def _read_accepted(self, stem: bytes) -> bool:
        """Read the time of acceptance of another request; returns whether the rest of the stem is the same."""
        texts = stem.rsplit(SEPARATOR, _AFTER_HEAD)
        if len(texts) != _AFTER_HEAD + 1:
            return False
        head, accepted, minute, epoch = texts
        if (
            head != self._head
            or minute != self.texts[MINUTE_AT]
            or epoch != self.epoch
            or not is_number_up_to(accepted, LAST_ACCEPTED)
        ):
            return False
        self._stem, self.accepted_us = stem, int(accepted)
        self.texts[ACCEPTED_AT] = accepted
        return True

    def _read_odd(self, header: bytes, stem: bytes) -> None:
        """Read a header that has more fields, or is malformed."""
        self.texts = texts = split_identity(header)
        seq = texts[SEQ_AT]
        self.epoch, self.sequence = seq[:EPOCH_DIGITS], int(seq[EPOCH_DIGITS + 1 :])
        self.backfill = len(texts) > ORIGIN_AT and texts[ORIGIN_AT] == BACKFILL
        if len(texts) == ORIGIN_AT + self.backfill:  # in an appended field, the last colon may be another one
            self._stem = stem
