"""Checks the text of a pipe as `hifi check --quick` checks a file. Blocking: call it from a thread."""

import tempfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, ScalarEvent

from hifi.check.pipe_check import check_folder
from hifi.delivery.several_logs import require_fit_for_colours
from hifi.pipe.limits import pipe_limits
from hifi.pipe.loader import not_yaml
from hifi.pipe.model import Pipe
from hifi.pipe.shared_keys import KeyOwners, shared_with
from hifi.pipe.sources.written_topics import shared_topic, topic_refusal
from hifi.runtime.errors import Misconfigured

MAX_BYTES: Final = 256 * 1024
"""Largest text; the time to read it grows with it, also without values, and Python reads YAML slowly."""
MAX_VALUES: Final = 10_000
"""Most values of a text, keys among them: each takes a fraction of a millisecond."""
MAX_DEPTH: Final = 64
"""Deepest nesting of a text, as of an event over HTTP: the time to read it grows with the square of the depth."""
_REMEDY: Final = "make it smaller, for example with a lookup, or publish it as a file with `hifi apply`"
_SHARED_KEY: Final = "another pipe has the same write key; give each its own"
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
    text: bytes,
    other_pipes: Mapping[str, Pipe],
    *,
    coloured: bool,
    declared: bool = False,
    hidden_names: Collection[str] = (),
) -> tuple[Pipe | None, list[TextProblem]]:
    """The pipe of a text in YAML or JSON, and all problems; None only if there are problems.

    SQL expressions are not checked, since that needs Spark. Paths must be absolute and JSON Schemas inline: nothing is
    read relative to this service, and no file of its machine becomes part of a pipe.

    Args:
        text: of one pipe.
        other_pipes: the other pipes by name, whose write keys and written topics it must not have.
        coloured: the stream is one of two colours.
        declared: it is that of a version that was declared, whose schemas may make it larger than a text of a caller.
        hidden_names: of those other pipes that no problem may name; for a step they are not there.
    """
    visible_pipes = {name: pipe for name, pipe in other_pipes.items() if name not in hidden_names}
    if unsafe_problems := list(_unsafe(text, bounded=not declared)):
        return None, unsafe_problems
    with tempfile.TemporaryDirectory(prefix="hifi-pipe-") as folder_name:
        folder = Path(folder_name).resolve()
        (folder / _FILE).write_bytes(text)
        pipes, check_problems = check_folder(
            folder,
            "micro-batch",
            sql=False,
            function_folders=pipe_limits().function_folders,
            other_pipes=visible_pipes,
        )
    problems = [
        TextProblem(problem.line, problem.column, problem.where, problem.message.replace(f"{folder}/", ""))
        for problem in check_problems
    ]
    pipe = pipes[0] if pipes else None
    if pipe is not None:
        problems += [
            TextProblem(1, 1, "", f"the path {path} is relative; write an absolute one")
            for path in _paths_below(folder, pipe.model_dump(mode="json"))
        ]
        owners = KeyOwners()
        for name, other_pipe in other_pipes.items():
            if name != pipe.pipe:
                owners.add(other_pipe)
        problems += [
            TextProblem(
                1, 1, f"source.keys[{index}]", _SHARED_KEY if name in hidden_names else shared_with(name)
            )
            for index, name in owners.others(pipe)
        ]
        if refusal := _topic_refusal(pipe, other_pipes, visible_pipes):
            problems.append(TextProblem(1, 1, "source.topic", refusal))
        if coloured:
            problems += _refused_in_colours(pipe)
    return pipe, problems


def _topic_refusal(
    pipe: Pipe, other_pipes: Mapping[str, Pipe], visible_pipes: Mapping[str, Pipe]
) -> str | None:
    """As `topic_refusal`, which names only pipes that are visible."""
    visible_sources = {name: visible.source for name, visible in visible_pipes.items() if name != pipe.pipe}
    if refusal := topic_refusal(pipe.source, visible_sources):
        return refusal
    for name in other_pipes.keys() - visible_pipes.keys() - {pipe.pipe}:
        if topic := shared_topic(pipe.source, other_pipes[name].source):
            return f"another pipe has its changes written to the topic {topic!r} too; give each its own topic"
    return None


def _refused_in_colours(pipe: Pipe) -> Iterator[TextProblem]:
    try:
        require_fit_for_colours([pipe])
    except Misconfigured as error:
        yield TextProblem(1, 1, "destinations", str(error))


def _unsafe(text: bytes, *, bounded: bool) -> Iterator[TextProblem]:
    """Problems that must not reach the loader: texts that take long to read, aliases, and schemas in files."""
    if bounded and len(text) > MAX_BYTES:
        yield TextProblem(1, 1, "", f"larger than {MAX_BYTES // 1024} KiB; {_REMEDY}")
        return
    try:
        content = text.decode()
    except UnicodeDecodeError as error:
        line = text.count(b"\n", 0, error.start) + 1
        yield TextProblem(line, 1, "", f"not UTF-8: byte {error.start} is 0x{text[error.start]:02x}")
        return
    try:
        depth = values = 0
        for event in YAML().parse(content):
            depth += isinstance(event, CollectionStartEvent) - isinstance(event, CollectionEndEvent)
            refusal = "aliases of YAML are not accepted here" if isinstance(event, AliasEvent) else ""
            if depth > MAX_DEPTH:
                refusal = f"nested deeper than {MAX_DEPTH} levels"
            values += isinstance(event, CollectionStartEvent | ScalarEvent)
            if bounded and values > MAX_VALUES:
                refusal = f"more than {MAX_VALUES:,} keys and values; {_REMEDY}"
            if refusal:
                position = event.start_mark
                yield TextProblem(position.line + 1, position.column + 1, "", refusal)
                return
        tree = YAML(typ="safe", pure=True).load(content)
    except Exception as error:  # noqa: BLE001 - a tag without meaning makes ruamel fail in many ways
        line, column, message = not_yaml(error, content)
        yield TextProblem(line, column, "", message)
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
