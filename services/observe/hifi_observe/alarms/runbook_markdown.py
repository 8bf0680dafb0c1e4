"""Runbooks as Markdown, for docs/runbooks.md. Pure."""

import textwrap
from typing import Final

from hifi_observe.alarms.runbooks import CODE, RUNBOOKS, Runbook

_WIDTH: Final = 120


def markdown() -> str:
    """The sections of docs/runbooks.md."""
    return "\n".join(_section(kind, one) for kind, one in RUNBOOKS.items())


def _section(kind: str, one: Runbook) -> str:
    lines = [
        f"## {kind}", "", _wrapped(one.means), "", "Likely causes:", "", *(_wrapped(each, "- ") for each in one.causes),
        "", "What to do:", "", *(_wrapped(each, f"{n}. ") for n, each in enumerate(one.steps, 1)), "",
    ]  # fmt: skip
    return "\n".join(lines)


def _wrapped(text: str, mark: str = "") -> str:
    # Code is not wrapped, so that it can be copied from the file as one line.
    held = CODE.sub(lambda match: match[0].replace(" ", "\0"), text)
    wrapped = textwrap.fill(
        held, _WIDTH, initial_indent=mark, subsequent_indent=" " * len(mark), break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return wrapped.replace("\0", " ")
