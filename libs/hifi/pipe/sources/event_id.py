"""Ids of the events of sources: never longer than those that ingest accepts. Pure."""

import hashlib

from hifi.record.cloudevents.attributes import MAX_ID_BYTES


def bounded_id(text: bytes, most_bytes: int = MAX_ID_BYTES) -> bytes:
    """The text, UTF-8; of a longer one its beginning, `~` and its SHA-256: the same text has the same id, always.

    Args:
        text: what identifies the event.
        most_bytes: largest size of the id, at least 65.
    """
    if len(text) <= most_bytes:
        return text
    digest = hashlib.sha256(text).hexdigest()
    beginning = text[: most_bytes - len(digest) - 1].decode(errors="ignore")  # it may end within a character
    return f"{beginning}~{digest}".encode()
