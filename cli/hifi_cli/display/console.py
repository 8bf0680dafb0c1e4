"""The two consoles of the command line: results on standard output, everything else on standard error.

Text that senders, pipes or destinations chose may hold control characters, with which it could change what a terminal
shows or does. They are printed as escapes.
"""

import re
import sys
from collections.abc import Iterable
from typing import Any, Final

import orjson
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_CONTROL: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\ud800-\udfff]"
)
"""Control characters but for tab and line feed, those that change the direction of text, and lone surrogates."""
_NOT_ESCAPED_BY_JSON: Final = re.compile(
    "[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb]"
)


def visible(text: str) -> str:
    r"""The text with its control characters as escapes, such as `\x1b`."""
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape", "backslashreplace").decode(), text)


class VisibleConsole(Console):
    """Prints control characters of texts as escapes; the styles are its own."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render as rich does, with visible texts."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


console: Final = VisibleConsole()
"""Results, on standard output."""
errors: Final = VisibleConsole(stderr=True)
"""Errors and progress, on standard error, so that results can be piped into another program."""


def print_json(value: Any) -> None:
    """Print one JSON document on standard output."""
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str).decode()
    print(_NOT_ESCAPED_BY_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def print_text(text: str) -> None:
    """Print a text on standard output; on a terminal with its control characters as escapes, else as it is."""
    print(visible(text) if sys.stdout.isatty() else text)
