"""Compressed bodies are decompressed within their limit, damaged ones refused."""

import gzip
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hifi.runtime.http.problem import Problem
from hifi_ingest.http import decompression

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


@given(st.lists(st.binary(max_size=2000), max_size=5), st.sampled_from(["gzip", "zstd"]))
def test_compressed_bodies_are_decompressed(chunks: list[bytes], coding: str) -> None:
    compress = gzip.compress if coding == "gzip" else zstd.compress
    body = b"".join(map(compress, chunks or [b""]))
    assert b"".join(decompression.decompress(coding, body, 100_000)) == b"".join(chunks)


@given(st.binary(min_size=1, max_size=300), st.sampled_from(["gzip", "zstd"]))
def test_damaged_bodies_are_400(body: bytes, coding: str) -> None:
    compressed = (gzip.compress if coding == "gzip" else zstd.compress)(body * 50)
    for damaged_body in (body, compressed[:-1], compressed[: len(compressed) // 2], compressed + body[:1]):
        with pytest.raises(Problem) as caught:
            b"".join(decompression.decompress(coding, damaged_body, 1_000_000))
        assert caught.value.status == 400


@pytest.mark.slow
def test_decompression_stops_at_the_limit() -> None:
    chunks: list[bytes] = []
    with pytest.raises(Problem) as caught:
        chunks.extend(decompression.decompress("gzip", gzip.compress(b" " * 100_000_000), 1_000_000))
    assert caught.value.status == 413
    assert len(b"".join(chunks)) <= 1_000_000


@pytest.mark.parametrize("window_log", [24, 27])
def test_a_zstd_window_above_the_limit_of_http_is_named(window_log: int) -> None:
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: window_log})
    body = compressor.compress(b"x" * (20 << 20)) + compressor.flush()
    with pytest.raises(Problem) as caught:
        b"".join(decompression.decompress("zstd", body, 100 << 20))
    assert caught.value.status == 400
    assert "8 MiB" in caught.value.detail
    compressor = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 23})
    body = compressor.compress(b"x" * (20 << 20)) + compressor.flush()
    assert sum(map(len, decompression.decompress("zstd", body, 100 << 20))) == 20 << 20
