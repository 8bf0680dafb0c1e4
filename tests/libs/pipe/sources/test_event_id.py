"""Ids of sources are never longer than ingest accepts, stay different, and stay the same."""

from hypothesis import given
from hypothesis import strategies as st

from hifi.pipe.sources.event_id import bounded_id
from hifi.record.cloudevents.attributes import MAX_ID_BYTES


@given(st.text(), st.integers(65, 200))
def test_an_id_is_bounded_utf_8_and_begins_as_what_it_stands_for(text: str, max_bytes: int) -> None:
    bounded = bounded_id(text.encode(), max_bytes)
    assert len(bounded) <= max_bytes
    bounded.decode()
    if len(text.encode()) <= max_bytes:
        assert bounded == text.encode()
    else:
        assert text.encode().startswith(bounded.rpartition(b"~")[0])
        assert bounded == bounded_id(text.encode(), max_bytes)


def test_long_texts_with_the_same_beginning_have_different_ids() -> None:
    id_texts = [b"x" * size + end for size in (512, 513, 10_000) for end in (b"", b"a", b"b")]
    ids = {bounded_id(text) for text in id_texts}
    assert len(ids) == len(id_texts)
    assert max(map(len, ids)) == MAX_ID_BYTES
