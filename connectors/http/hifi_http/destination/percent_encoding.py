"""Percent-encode the values of attributes for HTTP headers (HTTP binding, 3.1.3.2). Pure."""

import re
from typing import Final

_TO_ENCODE: Final = re.compile(rb"[^!#$&-~]")


def percent_encoded(value: bytes) -> bytes:
    """Encode UTF-8 text for a `ce-` header: space, `"`, `%` and everything but printable ASCII."""
    if _TO_ENCODE.search(value) is None:
        return value
    return _TO_ENCODE.sub(lambda match: b"%%%02X" % match[0][0], value)
