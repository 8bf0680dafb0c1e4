"""Decompress gzip and zstd bodies in chunks, within a size limit. Pure."""

import sys
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Final

from hifi.runtime.http.problem import Problem

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_INPUT_BYTES: Final = 64 * 1024
_OUTPUT_BYTES: Final = 256 * 1024
_MAX_FRAMES: Final = 100
"""Largest number of frames in a body; empty frames would cost time without growing the output."""
_WINDOW_LOG: Final = 23
"""8 MiB, the largest zstd window allowed in HTTP (RFC 9659)."""
_WINDOW_TOO_LARGE: Final = "requires too much memory"
"""Text of libzstd's error (ZSTD_error_frameParameter_windowTooLarge)."""


def _gunzip() -> Any:
    return zlib.decompressobj(wbits=31)


def _unzstd() -> Any:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG})


CODINGS: Final[dict[str, Callable[[], Any]]] = {"gzip": _gunzip, "x-gzip": _gunzip, "zstd": _unzstd}
"""Supported content codings (RFC 9110, 8.4.1; RFC 8878)."""


def decompress(coding: str, body: bytes, limit_bytes: int) -> Iterator[bytes]:
    """Decompress a body in chunks of at most 256 KiB.

    Args:
        coding: one of `CODINGS`.
        body: as sent.
        limit_bytes: of all chunks together.

    Raises:
        Problem: 413 as soon as the limit is exceeded; 400 if the body is damaged or truncated, or its window is too
            large.
    """
    total_bytes = 0
    try:
        for chunk in _chunks(coding, body):
            total_bytes += len(chunk)
            if total_bytes > limit_bytes:
                raise Problem(413, f"the body expands to more than {limit_bytes} bytes when decompressed")
            yield chunk
    except (zlib.error, zstd.ZstdError) as error:
        if _WINDOW_TOO_LARGE in str(error):
            raise Problem(
                400,
                f"the zstd body needs a window of more than {1 << _WINDOW_LOG - 20} MiB, the limit in HTTP (RFC 9659):"
                f" compress it with a window log of at most {_WINDOW_LOG}, so without --long and --ultra",
            ) from None
        raise Problem(400, f"the body is not valid {coding}") from None


def _chunks(coding: str, body: bytes) -> Iterator[bytes]:
    frame_count = 0
    decoder: Any = None
    for start in range(0, len(body), _INPUT_BYTES):
        compressed, has_more = body[start : start + _INPUT_BYTES], False
        while compressed or has_more:
            if decoder is None:
                decoder = CODINGS[coding]()
                frame_count += 1
                if frame_count > _MAX_FRAMES:
                    raise Problem(400, f"the body has more than {_MAX_FRAMES} {coding} frames")
            chunk = decoder.decompress(compressed, _OUTPUT_BYTES)
            yield chunk
            if decoder.eof:
                compressed, has_more, decoder = decoder.unused_data, False, None
            elif coding == "zstd":
                compressed, has_more = b"", not decoder.needs_input
            else:
                # After a full chunk the decoder may hold more output, even with no input left.
                compressed, has_more = decoder.unconsumed_tail, len(chunk) == _OUTPUT_BYTES
    if decoder is not None or not frame_count:
        raise Problem(400, f"the body ends in the middle of its {coding} data")
