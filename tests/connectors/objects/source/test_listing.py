"""A key that no client can name holds no other object up: keys are listed as they are, page by page."""

import itertools
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote_plus, unquote, urlsplit
from xml.sax.saxutils import escape

import obstore
import pytest
from obstore.store import MemoryStore

from hifi.runtime.errors import Misconfigured, Retryable
from hifi_objects.declaration import S3Settings
from hifi_objects.source import listing
from hifi_objects.source.bucket import ReadableBucket
from hifi_objects.source.listing import list_bucket, read_page, signed_headers
from hifi_objects.source.version import ObjectGone, ObjectUnreadable, ObjectVersion

KEYS = [
    "in/a.csv", "in//b.csv", "in/folder/", "in/folder", "in/c//", "in/../d.csv", "in/./e.csv", "in/f g+h&ü%2f.csv",
    "in/\x01.csv", "in/.hidden", "in/_work/x", "in/", "in/empty", "in/data/",
]  # fmt: skip
ASKED: list[str] = []
"""Paths of the objects that were read."""
SIZES = {"in/folder/": 0, "in/": 0, "in/empty": 0}


class Server(BaseHTTPRequestHandler):
    """Answers as S3 does, three keys a page."""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        parameters = {name: value[0] for name, value in parse_qs(url.query).items()}
        if "list-type" in parameters:
            assert parameters["prefix"] == "in/"
            assert self.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=access/")
            content = page(int(parameters.get("continuation-token", "0")))
        else:
            ASKED.append(url.path)
            content = b"a,b\n"
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.send_header("etag", '"tag"')
        self.send_header("last-modified", "Thu, 01 Jan 2026 00:00:00 GMT")
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


def page(first: int) -> bytes:
    keys = KEYS[first : first + 3]
    contents = "".join(
        f"<Contents><Key>{escape(quote_plus(key, safe='/'))}</Key><LastModified>2026-01-01T00:00:00.123Z</LastModified>"
        f"<ETag>&quot;tag&quot;</ETag><Size>{SIZES.get(key, 4)}</Size></Contents>"
        for key in keys
    )
    is_truncated = first + 3 < len(KEYS)
    token = f"<NextContinuationToken>{first + 3}</NextContinuationToken>" if is_truncated else ""
    return (
        '<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<EncodingType>url</EncodingType><IsTruncated>{str(is_truncated).lower()}</IsTruncated>{token}{contents}"
        "</ListBucketResult>"
    ).encode()


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Settings]:
    """A bucket of a server of this test."""
    monkeypatch.setenv("TEST_ACCESS", "access")
    monkeypatch.setenv("TEST_SECRET", "secret")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield bucket(f"http://127.0.0.1:{server.server_port}")
    server.shutdown()
    server.server_close()


def bucket(endpoint: str | None, **other_settings: str) -> S3Settings:
    return S3Settings.model_validate(
        {
            "bucket": "lake",
            "prefix": "in",
            "access_key": {"env": "TEST_ACCESS"},
            "secret_key": {"env": "TEST_SECRET"},
            **({} if endpoint is None else {"endpoint": endpoint}),
            **other_settings,
        }
    )


async def test_all_keys_are_listed_and_those_that_cannot_be_named_are_told_apart(
    settings: S3Settings,
) -> None:
    store = ReadableBucket(settings, "shop", None)
    versions = await store.listed()
    refused_paths = {version.path for version in versions if store.refusal(version) is not None}
    assert refused_paths == {"/b.csv", "c//", "data/", "\x01.csv"}, "parts that begin with a point are hidden"
    assert {version.path for version in versions} - refused_paths == {
        "a.csv", "folder", "f g+h&ü%2f.csv", "empty"
    }  # fmt: skip


async def test_a_version_is_the_same_when_it_is_opened(settings: S3Settings) -> None:
    store = ReadableBucket(settings, "shop", None)
    versions = {version.path: version for version in await store.listed()}
    readable = [version for version in versions.values() if store.refusal(version) is None]
    assert len(readable) == 4
    for version in readable:
        ASKED.clear()
        async with store.opened(version._replace(size=4)) as open_object:
            assert open_object.file.read() == b"a,b\n"
        assert [unquote(path) for path in ASKED] == [f"/lake/in/{version.path}"], (
            "it is this key that is read"
        )
    with pytest.raises(ObjectGone):
        async with store.opened(versions["a.csv"]._replace(version="another")):
            pass


@pytest.mark.parametrize(
    "content",
    [b"", b"no xml", b"<a>", b"<a><IsTruncated>true</IsTruncated></a>", b"<a><Contents/></a>"],
)
def test_an_answer_that_is_no_listing_is_no_empty_bucket(content: bytes) -> None:
    with pytest.raises((ValueError, SyntaxError)):
        read_page(content)


async def test_an_object_with_more_bytes_than_were_listed_is_not_copied_on(settings: S3Settings) -> None:
    store = ReadableBucket(settings, "shop", None)
    version = next(version for version in await store.listed() if version.path == "a.csv")
    with pytest.raises(ObjectUnreadable, match="more than the 3 bytes"):
        async with store.opened(version._replace(size=3)):
            pass


@pytest.mark.parametrize("tokens", [["3", "3"], ["3", "6", "3"]])
async def test_a_listing_that_begins_again_is_no_bucket_and_is_tried_again(
    settings: S3Settings, monkeypatch: pytest.MonkeyPatch, tokens: list[str]
) -> None:
    remaining_tokens = iter(tokens)
    monkeypatch.setattr(listing, "read_page", lambda _: listing._Page([], next(remaining_tokens)))
    with pytest.raises(Retryable, match=r"no end .*again"):
        await list_bucket(settings, "shop")


async def test_a_listing_has_at_most_as_many_pages_and_objects_as_fit_into_memory(
    settings: S3Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = itertools.count()
    objects = [listing.ListedObject("in/a", datetime(2026, 1, 1, tzinfo=UTC), "", 1)] * 5
    monkeypatch.setattr(listing, "_MOST_OBJECTS", 12)
    monkeypatch.setattr(listing, "_MOST_PAGES", 4)
    monkeypatch.setattr(listing, "read_page", lambda _: listing._Page(objects, str(next(numbers))))
    with pytest.raises(
        Misconfigured, match="more than 12 objects below the prefix in: name a longer `prefix`"
    ):
        await list_bucket(settings, "shop")
    objects.clear()
    with pytest.raises(Retryable, match=r"no end .*more than 4 pages"):
        await list_bucket(settings, "shop")


async def test_a_server_that_does_not_answer_can_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_ACCESS", "access")
    monkeypatch.setenv("TEST_SECRET", "secret")
    with pytest.raises(Retryable, match="the bucket lake"):
        await ReadableBucket(bucket("http://127.0.0.1:1"), "shop", None).listed()


def test_the_signature_is_that_of_the_example_of_aws() -> None:
    """The example "GET Bucket (List Objects)" of the documentation of Signature Version 4."""
    headers = signed_headers(
        "AKIAIOSFODNN7EXAMPLE",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "us-east-1",
        "examplebucket.s3.amazonaws.com",
        "/\nmax-keys=2&prefix=J",
        datetime(2013, 5, 24, tzinfo=UTC),
    )
    assert headers["authorization"].endswith(
        "Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"
    )


def test_keys_that_obstore_cannot_name_are_refused_before_it_is_asked(settings: S3Settings) -> None:
    store, names = ReadableBucket(settings, "shop", None), MemoryStore()
    characters = [*map(chr, range(0x300)), "\u2028", "\ufeff", "\uffff", "\U0001f600", "\udcff"]
    for key in (
        *(f"a{character}b" for character in characters),
        "a//b", "/a", "a/", "a/./b", "../a", "a/..", "a/...", "a/.b", "~", "a\\b", "a%2fb", "*",
    ):  # fmt: skip
        try:
            obstore.head(names, key)
        except FileNotFoundError as error:
            is_same = f"at location {key} not found" in str(error)
        except ValueError:
            is_same = False
        assert (store.refusal(ObjectVersion(key, "", 1, 0)) is None) == is_same, repr(key)
