"""Decompress gzip and zstd bodies in pieces, within a size limit. Pure."""

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
"""What libzstd says (ZSTD_error_frameParameter_windowTooLarge)."""


def _gunzip() -> Any:
    return zlib.decompressobj(wbits=31)


def _unzstd() -> Any:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: _WINDOW_LOG})


CODINGS: Final[dict[str, Callable[[], Any]]] = {"gzip": _gunzip, "x-gzip": _gunzip, "zstd": _unzstd}
"""Supported content codings (RFC 9110, 8.4.1; RFC 8878)."""


def decompress(coding: str, body: bytes, limit_bytes: int) -> Iterator[bytes]:
    """Decompress a body in pieces of at most 256 KiB.

    Args:
        coding: one of `CODINGS`.
        body: as sent.
        limit_bytes: of all pieces together.

    Raises:
        Problem: 413 as soon as the limit is exceeded; 400 if the body is damaged or truncated, or its window is too
            large.
    """
    total = 0
    try:
        for piece in _pieces(coding, body):
            total += len(piece)
            if total > limit_bytes:
                raise Problem(413, f"the body expands to more than {limit_bytes} bytes when decompressed")
            yield piece
    except (zlib.error, zstd.ZstdError) as error:
        if _WINDOW_TOO_LARGE in str(error):
            raise Problem(
                400,
                f"the zstd body needs a window of more than {1 << _WINDOW_LOG - 20} MiB, the limit in HTTP (RFC 9659):"
                f" compress it with a window log of at most {_WINDOW_LOG}, so without --long and --ultra",
            ) from None
        raise Problem(400, f"the body is not valid {coding}") from None


def _pieces(coding: str, body: bytes) -> Iterator[bytes]:
    frames = 0
    decoder: Any = None
    for at in range(0, len(body), _INPUT_BYTES):
        chunk, more = body[at : at + _INPUT_BYTES], False
        while chunk or more:
            if decoder is None:
                decoder = CODINGS[coding]()
                frames += 1
                if frames > _MAX_FRAMES:
                    raise Problem(400, f"the body has more than {_MAX_FRAMES} {coding} frames")
            piece = decoder.decompress(chunk, _OUTPUT_BYTES)
            yield piece
            if decoder.eof:
                chunk, more, decoder = decoder.unused_data, False, None
            elif coding == "zstd":
                chunk, more = b"", not decoder.needs_input
            else:
                # After a full piece the decoder may hold more output, even with no input left.
                chunk, more = decoder.unconsumed_tail, len(piece) == _OUTPUT_BYTES
    if decoder is not None or not frames:
        raise Problem(400, f"the body ends in the middle of its {coding} data")
