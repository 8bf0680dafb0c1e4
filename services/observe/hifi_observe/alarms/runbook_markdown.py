"""Runbooks as Markdown, for docs/runbooks.md. Pure."""

import textwrap
from typing import Final

from hifi_observe.alarms.runbooks import CODE, RUNBOOKS, Runbook

_WIDTH: Final = 120


def markdown() -> str:
    """The sections of docs/runbooks.md."""
    return "\n".join(_section(kind, runbook) for kind, runbook in RUNBOOKS.items())


def _section(kind: str, runbook: Runbook) -> str:
    causes = _wrapped("Causes: " + " ".join(runbook.causes))
    steps = (_wrapped(step, f"{number}. ") for number, step in enumerate(runbook.steps, 1))
    lines = [f"## {kind}", "", _wrapped(runbook.means), "", causes, "", *steps, ""]
    return "\n".join(lines)


def _wrapped(text: str, mark: str = "") -> str:
    # Code is not wrapped, so that it can be copied from the file as one line.
    unbroken = CODE.sub(lambda match: match[0].replace(" ", "\0"), text)
    wrapped = textwrap.fill(
        unbroken, _WIDTH, initial_indent=mark, subsequent_indent=" " * len(mark), break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip
    return wrapped.replace("\0", " ")
