"""Checks the text of a pipe as `hifi check --quick` checks a file. Blocking: call it from a thread."""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.events import AliasEvent

from hifi.check.pipe_check import check_folder
from hifi.delivery.several_logs import require_fit_for_colours
from hifi.pipe.limits import pipe_limits
from hifi.pipe.model import Pipe
from hifi.runtime.errors import Misconfigured

_FILE: Final = "pipe.yaml"


@dataclass(frozen=True, slots=True)
class TextProblem:
    """A problem in the text of a pipe.

    Attributes:
        line: from 1.
        column: from 1.
        where: path of the key, such as `destinations[0].url`; empty: the text as a whole.
        message: what is wrong and how to correct it.
    """

    line: int
    column: int
    where: str
    message: str


def read_pipe(
    text: bytes, others: Mapping[str, Pipe], *, coloured: bool
) -> tuple[Pipe | None, list[TextProblem]]:
    """The pipe of a text in YAML or JSON, and all problems; None only if there are problems.

    SQL expressions are not checked, since that needs Spark. Paths must be absolute and JSON Schemas inline: nothing is
    read relative to this service, and no file of its machine becomes part of a pipe.

    Args:
        text: of one pipe.
        others: the other pipes by name, whose write keys it must not have.
        coloured: the stream is one of two colours.
    """
    if unsafe := list(_unsafe(text)):
        return None, unsafe
    with tempfile.TemporaryDirectory(prefix="hifi-pipe-") as folder_name:
        folder = Path(folder_name).resolve()
        (folder / _FILE).write_bytes(text)
        pipes, refused = check_folder(
            folder, "micro-batch", sql=False, function_folders=pipe_limits().function_folders
        )
    problems = [
        TextProblem(problem.line, problem.column, problem.where, problem.message.replace(f"{folder}/", ""))
        for problem in refused
    ]
    pipe = pipes[0] if pipes else None
    if pipe is not None:
        problems += [
            TextProblem(1, 1, "", f"the path {path} is relative; write an absolute one")
            for path in _paths_below(folder, pipe.model_dump(mode="json"))
        ]
        problems += [
            TextProblem(
                1, 1, "source.keys", f"the pipe {name!r} has one of its write keys; give each its own"
            )
            for name, other in others.items()
            if name != pipe.pipe
            and any(key.same_as(others_key) for key in pipe.source.keys for others_key in other.source.keys)
        ]
        if coloured:
            problems += _refused_in_colours(pipe)
    return pipe, problems


def _refused_in_colours(pipe: Pipe) -> Iterator[TextProblem]:
    try:
        require_fit_for_colours([pipe])
    except Misconfigured as error:
        yield TextProblem(1, 1, "destinations", str(error))


def _unsafe(text: bytes) -> Iterator[TextProblem]:
    """What must not reach the loader: aliases, which can make a short text huge, and schemas in files."""
    try:
        for event in YAML().parse(text):
            if isinstance(event, AliasEvent):
                mark = event.start_mark
                yield TextProblem(mark.line + 1, mark.column + 1, "", "aliases of YAML are not accepted here")
                return
        tree = YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError:
        return  # the loader reports it
    except (RecursionError, UnicodeDecodeError, ValueError) as error:
        yield TextProblem(1, 1, "", f"not YAML: {str(error).splitlines()[0]}")
        return
    normalize = tree.get("normalize") if isinstance(tree, dict) else None
    if isinstance(normalize, dict) and isinstance(normalize.get("schema"), str):
        yield TextProblem(1, 1, "normalize.schema", "write the JSON Schema itself; files are not read here")


def _paths_below(folder: Path, node: Any) -> Iterator[str]:
    if isinstance(node, str):
        if node.startswith(f"{folder}/"):
            yield node.removeprefix(f"{folder}/")
    elif isinstance(node, Mapping):
        for value in node.values():
            yield from _paths_below(folder, value)
    elif isinstance(node, list):
        for value in node:
            yield from _paths_below(folder, value)
