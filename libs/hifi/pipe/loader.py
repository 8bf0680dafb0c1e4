"""Load pipes and views from YAML files; each problem is reported with its file and line."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Final

import jsonschema_rs
import orjson
from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.comments import TaggedScalar
from ruamel.yaml.constructor import RoundTripConstructor
from ruamel.yaml.error import MarkedYAMLError
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.reader import ReaderError
from ruamel.yaml.scalarbool import ScalarBoolean

from hifi.pipe.limits import resolved_path
from hifi.pipe.model import MapRule, Pipe
from hifi.pipe.named_secrets import secrets
from hifi.pipe.normalize.schema_cost import SchemaCost
from hifi.pipe.normalize.time_parsing import ignored_part, time_reader
from hifi.pipe.shared_keys import KeyOwners, shared_with
from hifi.pipe.sources.written_topics import topic_refusal
from hifi.pipe.strict_model import validation_problems
from hifi.pipe.view import View
from hifi.runtime.errors import Misconfigured

_MOST_VALUES: Final = 1_000_000
"""Keys and values of a file."""
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_SHOWN: Final = 80
"""Most characters of a key in a message."""
_SMALLEST, _LARGEST = -(2**63), 2**64 - 1
"""Whole numbers that orjson writes."""


class _RoundedNumber(float):
    """A number with digits that a double does not have."""


class _ExactConstructor(RoundTripConstructor):
    """Constructor of YAML values that tells numbers which lost digits."""

    def construct_yaml_float(self, node: ScalarNode) -> float:
        number: float = super().construct_yaml_float(node)
        try:
            is_exact = not math.isfinite(number) or Decimal(node.value) == Decimal(repr(float(number)))
        except InvalidOperation:  # such as 1:30.5, which YAML 1.1 takes for a number
            return number
        return number if is_exact else _RoundedNumber(number)


_ExactConstructor.add_constructor("tag:yaml.org,2002:float", _ExactConstructor.construct_yaml_float)


@dataclass(frozen=True, slots=True)
class PipeProblem:
    """A problem in a YAML file; `line` and `column` count from 1."""

    file: Path
    line: int
    where: str
    message: str
    column: int = 1

    def __str__(self) -> str:
        location = f"{self.where}: " if self.where else ""
        return f"{self.file}:{self.line}: {location}{self.message}"


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """A file with its YAML tree, so that later checks can report lines too."""

    file: Path
    tree: Any

    def problem(self, path: Sequence[str | int], message: str) -> PipeProblem:
        """A problem at a path in the YAML, such as `("enrich", "derive", "late")`."""
        return _problem(self.file, self.tree, path, message)


@dataclass(frozen=True, slots=True)
class LoadedPipe(LoadedFile):
    """A pipe and its file."""

    pipe: Pipe


@dataclass(frozen=True, slots=True)
class LoadedView(LoadedFile):
    """A view and its file."""

    view: View


@dataclass(frozen=True, slots=True)
class LoadedFolder:
    """The pipes and views of a folder that could be loaded, and the problems of all its YAML files."""

    pipes: list[LoadedPipe]
    views: list[LoadedView]
    problems: list[PipeProblem]


def load_folder(folder: Path) -> LoadedFolder:
    """Load pipes and views of a folder, each file read once, as `load` and `load_views` do."""
    files, problems = _read_folder(folder)
    pipes, pipe_problems = _load_pipes(files)
    views, view_problems = _load_views(files)
    return LoadedFolder(pipes, views, [*problems, *pipe_problems, *view_problems])


def load(folder: Path) -> tuple[list[LoadedPipe], list[PipeProblem]]:
    """Load every `*.yaml` and `*.yml` file of a folder that declares a pipe.

    A loaded pipe is self-contained: schemas are included, and paths of lookups and secrets are absolute.

    Returns:
        The pipes that could be loaded, and all problems.
    """
    files, problems = _read_folder(folder)
    loaded_pipes, pipe_problems = _load_pipes(files)
    return loaded_pipes, problems + pipe_problems


def load_views(folder: Path) -> tuple[list[LoadedView], list[PipeProblem]]:
    """Load every file of a folder that declares a view; paths of keys are absolute.

    Returns:
        The views that could be loaded, and problems of files with views. Whether their pipes allow them is not checked.
    """
    return _load_views(_read_folder(folder)[0])


def _load_pipes(files: Sequence[LoadedFile]) -> tuple[list[LoadedPipe], list[PipeProblem]]:
    loaded_pipes: list[LoadedPipe] = []
    problems: list[PipeProblem] = []
    for file in files:
        if is_view(file.tree):
            continue
        loaded_pipe = _load_pipe(file, problems)
        if loaded_pipe is None:
            continue
        namesake = next(
            (candidate for candidate in loaded_pipes if candidate.pipe.pipe == loaded_pipe.pipe.pipe), None
        )
        if namesake is not None:
            problems.append(
                loaded_pipe.problem(
                    ["pipe"],
                    f"the pipe {loaded_pipe.pipe.pipe!r} is declared in {namesake.file.name} too; names must differ",
                )
            )
        else:
            loaded_pipes.append(loaded_pipe)
    problems += _shared_keys(loaded_pipes)
    problems += _shared_topics(loaded_pipes)
    return loaded_pipes, problems


def _load_views(files: Sequence[LoadedFile]) -> tuple[list[LoadedView], list[PipeProblem]]:
    loaded_views: list[LoadedView] = []
    problems: list[PipeProblem] = []
    for file in files:
        if not is_view(file.tree):
            continue
        try:
            declared_view = View.model_validate(_plain(file.tree))
            content = declared_view.model_dump(by_alias=True, exclude_defaults=True, mode="json")
            content = _with_absolute_secrets(content, declared_view, file.file.resolve().parent)
            view = LoadedView(file.file, file.tree, View.model_validate(content))
        except ValidationError as error:
            problems += [file.problem(path, message) for path, message in validation_problems(error)]
            continue
        namesake = next(
            (candidate for candidate in loaded_views if candidate.view.table == view.view.table), None
        )
        if namesake is not None:
            message = (
                f"the view {view.view.view!r} has the name in SQL of {namesake.file.name}; names must differ"
            )
            problems.append(view.problem(["view"], message))
        else:
            loaded_views.append(view)
    return loaded_views, problems


def is_view(tree: Any) -> bool:
    """Whether the content of a YAML file declares a view, not a pipe."""
    return isinstance(tree, dict) and "view" in tree and "pipe" not in tree


def _read_folder(folder: Path) -> tuple[list[LoadedFile], list[PipeProblem]]:
    """The YAML files of a folder, each parsed once, and what cannot be read."""
    paths = sorted([*folder.glob("*.yaml"), *folder.glob("*.yml")]) if folder.is_dir() else []
    if not paths:
        problem = "holds no *.yaml file" if folder.is_dir() else "is not a folder"
        return [], [PipeProblem(folder, 1, "", f"{problem}; name a folder with one YAML file for each pipe")]
    problems: list[PipeProblem] = []
    trees = [(path, _read_tree(path, problems)) for path in paths]
    files: list[LoadedFile] = []
    for file in (LoadedFile(path, tree) for path, tree in trees if tree is not None):
        value_problems = [file.problem(path, message) for path, message in _refused_values(file.tree, ())]
        problems += value_problems
        if not value_problems:
            files.append(file)
    return files, problems


def _refused_values(node: Any, path: tuple[str | int, ...]) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Path and reason of each key and value that the records of declared pipes cannot hold."""
    if isinstance(node, dict):
        for key, value in node.items():
            if not isinstance(key, str | TaggedScalar) and (
                isinstance(key, bool) or not isinstance(key, int)
            ):
                yield path, f"the key {str(key)[:_SHOWN]} is no text: write it in quotes"
            yield from _refused_values(str(key), path)
            yield from _refused_values(value, (*path, str(key)))
    elif isinstance(node, list):
        for index, value in enumerate(node):
            yield from _refused_values(value, (*path, index))
    elif message := _refused_scalar(node):
        yield path, message


def _refused_scalar(node: Any) -> str:
    """Why no record can hold a value as it is written; empty: one can."""
    message = ""
    if isinstance(node, float) and not math.isfinite(node):
        message = f"{float(node)} is not allowed; write a finite number"
    elif isinstance(node, _RoundedNumber):
        message = f"a double has fewer digits and would be {float(node)}: write the number as text, in quotes"
    elif isinstance(node, int) and not _SMALLEST <= node <= _LARGEST:
        message = f"write a whole number from {_SMALLEST} to {_LARGEST}"
    elif isinstance(node, str) and _SURROGATE.search(node):
        message = "a text has a surrogate, such as \\ud83d; write the character itself"
    elif isinstance(node, datetime):
        message = "a time without quotes would be written in another form: write it in quotes"
    elif not (node is None or isinstance(node, int | float | str | date | TaggedScalar)):
        message = f"JSON has no value of the type {type(node).__name__}: write text, in quotes"
    return message


def _read_tree(file: Path, problems: list[PipeProblem]) -> Any:
    """The content of a YAML file; None, and a problem, if it has none."""
    try:
        text = file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        problems.append(PipeProblem(file, 1, "", f"cannot be read: {error}"))
        return None
    try:
        yaml = YAML(typ="rt")
        yaml.Constructor = _ExactConstructor
        tree = yaml.load(text)
    except Exception as error:  # noqa: BLE001 - a tag without meaning makes ruamel fail in many ways
        line, column, message = not_yaml(error, text)
        problems.append(PipeProblem(file, line, "", message, column))
        return None
    if not isinstance(tree, dict):
        problems.append(PipeProblem(file, 1, "", "is not a mapping; begin with `pipe: NAME`"))
        return None
    if _count(tree, {}) > _MOST_VALUES:
        message = f"has more than {_MOST_VALUES:,} keys and values, or aliases that stand for more"
        problems.append(PipeProblem(file, 1, "", message))
        return None
    return tree


def _count(node: Any, counts: dict[int, float]) -> float:
    """Keys and values of a tree, those behind each alias counted for each; infinite where one stands within itself."""
    if not isinstance(node, dict | list):
        return 1
    if id(node) not in counts:
        counts[id(node)] = math.inf
        members = [*node, *node.values()] if isinstance(node, dict) else node
        counts[id(node)] = 1 + sum(_count(member, counts) for member in members)
    return counts[id(node)]


def _load_pipe(file: LoadedFile, problems: list[PipeProblem]) -> LoadedPipe | None:
    problem_count = len(problems)
    try:
        pipe = Pipe.model_validate(_plain(file.tree))
        problems += _time_problems(pipe, file)
        pipe = _self_contained(pipe, file, problems)
    except ValidationError as error:
        problems += [file.problem(path, message) for path, message in validation_problems(error)]
        return None
    return LoadedPipe(file.file, file.tree, pipe) if len(problems) == problem_count else None


def _time_problems(pipe: Pipe, file: LoadedFile) -> Iterator[PipeProblem]:
    """The formats and zones of times that no service could use, and formats that lose a part of what they read."""
    for name, rule in (pipe.normalize.fields or {}).items():
        if isinstance(rule, MapRule) and rule.time is not None:
            path = ["normalize", "fields", name, "time"]
            try:
                time_reader(rule.time)
            except Misconfigured as error:
                yield file.problem(path, str(error))
                continue
            if (ignored := ignored_part(rule.time.format)) is not None:
                yield file.problem(
                    path, f"the format {rule.time.format!r} loses a part of the time: {ignored}"
                )


def not_yaml(error: Exception, text: str) -> tuple[int, int, str]:
    """Line and column, from 1, of what makes a text no YAML, and what that is.

    Args:
        error: that ruamel raised.
        text: that it read.
    """
    position, message = 0, str(error).partition("\n")[0] or type(error).__name__
    if isinstance(error, MarkedYAMLError):
        message = str(error.problem or error.context)
        if mark := error.problem_mark or error.context_mark:
            return mark.line + 1, mark.column + 1, f"not YAML: {message}"
    elif isinstance(error, ReaderError):
        position = error.position
        message = (
            f"the character U+{ord(text[position]):04X} is not allowed" if position < len(text) else message
        )
    elif isinstance(error, RecursionError):
        message = "it is nested too deeply"
    elif message.startswith("Exceeds the limit"):
        message = "a number has more than 4,300 digits; write it as text"
    elif isinstance(error, KeyError):
        message = f"{error} is no value of its tag"
    preceding_text = text[:position]
    return (
        preceding_text.count("\n") + 1,
        len(preceding_text) - preceding_text.rfind("\n"),
        f"not YAML: {message}",
    )


def _self_contained(pipe: Pipe, file: LoadedFile, problems: list[PipeProblem]) -> Pipe:
    """Include schemas and make paths absolute."""
    folder = file.file.resolve().parent
    declaration = pipe.model_dump(by_alias=True, exclude_defaults=True, mode="json")
    schema = pipe.normalize.json_schema
    schema_path = ["normalize", "schema"]
    if isinstance(schema, Path):
        try:
            schema = orjson.loads(_inside(folder, schema).read_bytes())
        except (OSError, ValueError) as error:
            problems.append(file.problem(schema_path, f"the schema {schema} cannot be read: {error}"))
            return pipe
    if schema is not None:
        try:
            jsonschema_rs.validator_for(schema, offline=True)
        except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
            problems.append(file.problem(schema_path, f"not a JSON Schema: {str(error).splitlines()[0]}"))
            return pipe
        try:
            SchemaCost(schema)
        except Misconfigured as error:
            problems.append(file.problem(schema_path, str(error)))
            return pipe
        declaration["normalize"]["schema"] = schema
    for name, lookup in pipe.enrich.lookups.items():
        if lookup.file is not None:
            declaration["enrich"]["lookups"][name]["file"] = str(folder / lookup.file)
    return Pipe.model_validate(_with_absolute_secrets(declaration, pipe, folder))


def _inside(folder: Path, file: Path) -> Path:
    """The path of a file in the folder of a pipe, symbolic links resolved.

    Raises:
        ValueError: the file is elsewhere.
    """
    resolved_file = resolved_path(folder / file)
    if file.is_absolute() or ".." in file.parts or not resolved_file.is_relative_to(folder):
        raise ValueError(f"it must be a file in {folder}, without `..` and links that lead out of it")
    return resolved_file


def _with_absolute_secrets(declaration: dict[str, Any], parsed: BaseModel, folder: Path) -> dict[str, Any]:
    """A declaration whose secret files have absolute paths; in a YAML file they are relative to its folder."""
    for path, secret in secrets(parsed):
        if secret.file is not None:
            node: Any = declaration
            for key in path:
                node = node[key]
            node["file"] = str(folder / secret.file)
    return declaration


def _shared_keys(loaded_pipes: list[LoadedPipe]) -> list[PipeProblem]:
    """Two pipes must not share a write key, because at /v1/events the key determines the pipe."""
    owners, problems = KeyOwners(), []
    for loaded_pipe in loaded_pipes:
        problems += [
            loaded_pipe.problem(["source", "keys", index], shared_with(name))
            for index, name in owners.others(loaded_pipe.pipe)
        ]
        owners.add(loaded_pipe.pipe)
    return problems


def _shared_topics(loaded_pipes: list[LoadedPipe]) -> list[PipeProblem]:
    """Two pipes must not have the changes of their sources written to one topic."""
    return [
        loaded_pipe.problem(["source", "topic"], refusal)
        for number, loaded_pipe in enumerate(loaded_pipes)
        if (
            refusal := topic_refusal(
                loaded_pipe.pipe.source,
                {earlier_pipe.pipe.pipe: earlier_pipe.pipe.source for earlier_pipe in loaded_pipes[:number]},
            )
        )
    ]


def _problem(file: Path, tree: Any, path: Sequence[str | int], message: str) -> PipeProblem:
    line, column = _position_of(tree, path)
    return PipeProblem(file, line, dotted(path), message, column)


def _position_of(tree: Any, path: Sequence[str | int]) -> tuple[int, int]:
    """Line and column, from 1, of the deepest key of a path that the YAML has."""
    line, column = 0, 0
    for key in path:
        try:
            if isinstance(tree, dict) and key in tree:
                line, column = tree.lc.key(key)  # type: ignore[attr-defined]
            elif isinstance(tree, list) and isinstance(key, int):
                line, column = tree.lc.item(key)  # type: ignore[attr-defined]
            else:
                break
            tree = tree[key]
        except (KeyError, IndexError, TypeError, AttributeError):
            break
    return line + 1, column + 1


def dotted(path: Sequence[str | int]) -> str:
    """`("destinations", 0, "when")` as `destinations[0].when`."""
    text = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)
    return text.removeprefix(".").encode("utf-8", "backslashreplace").decode()


def _plain(node: Any) -> Any:
    """Convert ruamel's round-trip tree to plain dicts, lists and scalars."""
    if isinstance(node, dict):
        return {str(key): _plain(value) for key, value in node.items()}
    if isinstance(node, list):
        return [_plain(value) for value in node]
    if isinstance(node, ScalarBoolean):  # with an anchor
        return bool(node)
    if isinstance(node, bool | int | float | str) or node is None:
        for kind in (bool, int, float, str):
            if isinstance(node, kind):
                return kind(node)
        return None
    return str(node)
