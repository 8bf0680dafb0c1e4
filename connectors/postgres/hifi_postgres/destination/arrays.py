"""Arrays of PostgreSQL as text. Pure."""

from collections.abc import Sequence


def array_text(texts: Sequence[str | None], delimiter: str = ",") -> str:
    """An array with these elements; None: null."""
    return "{" + delimiter.join(["NULL" if text is None else quoted(text) for text in texts]) + "}"


def quoted(text: str) -> str:
    """A text as an element of an array, or as a name or value of `hstore`."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
