"""Content types are read as RFC 9110 defines them."""

import pytest

from hifi.runtime.http.media_type import is_json, is_utf8, media_type


@pytest.mark.parametrize(
    ("content_type", "kind", "json"),
    [
        (b"application/json", b"application/json", True),
        (b" Application/JSON ; charset=utf-8", b"application/json", True),
        (b"application/cloudevents+json", b"application/cloudevents+json", True),
        (b"text/json", b"text/json", True),
        (b"text/plain", b"text/plain", False),
        (b"application/jsonl", b"application/jsonl", False),
        (b'text/plain; x="a b";\ty=1', b"text/plain", False),
        (b"text/plain; x=\xff", None, False),
        (b"application/json; x=\x00", None, False),
        ("text/plain; x=ä".encode(), None, False),
        (b"json", None, False),
        (b"", None, False),
    ],
)
def test_media_types_and_json(content_type: bytes, kind: bytes | None, json: bool) -> None:
    assert media_type(content_type) == kind
    assert is_json(content_type) is json


@pytest.mark.parametrize(
    ("content_type", "utf8"),
    [
        (b"application/json", True),
        (b"application/json; charset=UTF-8", True),
        (b'application/json;charset="utf-8"', True),
        (b"application/json; a=b; charset=us-ascii", True),
        (b'application/json; a="; charset=latin-1"', True),
        (b"application/json; xcharset=latin-1", True),
        (b"application/json; charset=latin-1", False),
        (b'application/json; charset="iso-8859-1"', False),
        (b"application/json; charset=utf-8; charset=utf-16", False),
        (b"application/json; CharSet=", False),
    ],
)
def test_the_charset_parameter_decides_whether_text_is_utf_8(content_type: bytes, utf8: bool) -> None:
    assert is_utf8(content_type) is utf8
