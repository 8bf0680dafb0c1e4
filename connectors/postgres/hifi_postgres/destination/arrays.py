"""Arrays of PostgreSQL as text. Pure."""

from collections.abc import Sequence


def array_text(texts: Sequence[str | None], delimiter: str = ",") -> str:
    """An array with these elements; None: null."""
    present = [text for text in texts if text is not None]
    if present and len(present) == len(texts):
        # Most columns, without a call for each element.
        elements = f'"{delimiter}"'.join(present)
        if "\\" not in elements and elements.count('"') == 2 * len(present) - 2:
            return f'{{"{elements}"}}'
    return "{" + delimiter.join(["NULL" if text is None else quoted(text) for text in texts]) + "}"


def quoted(text: str) -> str:
    """A text as an element of an array, or as a name or value of `hstore`."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
