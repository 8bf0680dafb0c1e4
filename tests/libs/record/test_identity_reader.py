"""A reader of many headers in a row reads each as if it were the first."""

from hypothesis import given
from hypothesis import strategies as st

from hifi.record.headers import IDENTITY
from hifi.record.identity import ACCEPTED_AT, SEQ_AT, IdentityReader
from hifi.runtime.errors import NotAnEvent

EPOCHS = (b"0123456789abcdef", b"0123456789abcdee", b"0123")
HEADS = (
    b"2;flights;7;7",
    b"2;flights;7;8",
    b"2;orders;7;7",
    b"2;a;b;7;7",
    b"1;flights;7;7",
    b"2;fl\xfcge;7;7",
)
ACCEPTED = (b"1", b"1800000000000000", b"1800000000000001", b"", b"x", b"-1", b"9" * 30)
SEQUENCES = (b"0", b"1", b"25", b"", b"x", b"1" * 20, b"1:2")
ENDINGS = (b"", b"", b";backfill", b";", b";;", b";backfill;", b";x:5", b";backfill;;log:1")
HEADERS = st.builds(
    lambda head, accepted, minute, epoch, sequence, ending: (
        b";".join([head, accepted, minute, epoch + b":" + sequence]) + ending
    ),
    st.sampled_from(HEADS[:2]) | st.sampled_from(HEADS),
    st.sampled_from(ACCEPTED[:3]) | st.sampled_from(ACCEPTED),
    st.sampled_from((b"30000000", b"30000001")),
    st.sampled_from(EPOCHS[:1]) | st.sampled_from(EPOCHS),
    st.sampled_from(SEQUENCES[:3]) | st.sampled_from(SEQUENCES),
    st.sampled_from(ENDINGS[:3]) | st.sampled_from(ENDINGS),
)
Read = tuple[list[bytes], bytes, int, int, bool]


def read(reader: IdentityReader, header: bytes) -> tuple[bool, Read] | None:
    """Whether more than sequence and time differs, and what was read; None: the header is malformed."""
    try:
        differs = reader.read([(IDENTITY, header)])
    except NotAnEvent:
        return None
    identity_texts = reader.texts[:SEQ_AT]
    return differs, (identity_texts, reader.epoch, reader.sequence, reader.accepted_us, reader.backfill)


def without_times(event: Read) -> tuple[list[bytes], bytes, bool]:
    identity_texts, epoch, _, _, backfill = event
    return identity_texts[:ACCEPTED_AT] + identity_texts[ACCEPTED_AT + 1 :], epoch, backfill


@given(st.lists(HEADERS, max_size=12))
def test_each_header_is_read_as_if_it_were_the_first(headers: list[bytes]) -> None:
    reader = IdentityReader()
    previous_event: Read | None = None
    for header in headers:
        result, first_result = read(reader, header), read(IdentityReader(), header)
        if first_result is None:
            assert result is None
            continue
        assert result is not None
        differs, event = result
        assert event == first_result[1]
        if not differs:
            assert previous_event is not None
            assert without_times(event) == without_times(previous_event)
        previous_event = event


def test_only_the_first_of_similar_headers_differs() -> None:
    reader = IdentityReader()
    headers = [b"2;flights;7;7;%d;30000000;%b:%d" % (number // 2, EPOCHS[0], number) for number in range(6)]
    assert [reader.read([(IDENTITY, header)]) for header in headers] == [
        True,
        False,
        False,
        False,
        False,
        False,
    ]
