"""A pipe's normalize made into one function of data. Pure, but for the secrets and functions that the pipe names.

The order: schema, function or fields, masks, removal of the names that enrich adds.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hifi.errors import Misconfigured, Rejected
from hifi.http.media_type import is_json
from hifi.pipe.model import Pipe
from hifi.pipe.normalize.field_mapping import mapper
from hifi.pipe.normalize.json_schema import checker
from hifi.pipe.normalize.lazy_json import Tree, encode, open_root
from hifi.pipe.normalize.masking import masker
from hifi.pipe.normalize.user_function import load


@dataclass(frozen=True, slots=True)
class Program:
    """What a version of a pipe does to data. `steps` empty: nothing, and data need not be JSON."""

    steps: tuple[Callable[[bytes], bytes], ...]

    def run(self, data: bytes | None, content_type: bytes | None) -> bytes | None:
        """The data as it goes on.

        Args:
            data: as ingest took it.
            content_type: of the data, as the sender declared it.

        Raises:
            Rejected: with the reason not-json, not-an-object, schema, function-failed, cast, time, required or
                mapping-failed.
        """
        if not self.steps:
            return data
        if content_type is not None and not is_json(content_type):
            raise Rejected("not-json", "the pipe needs JSON, and the event's content type says otherwise")
        if not data:
            raise Rejected("not-json", "the pipe needs JSON, and the event has no data")
        for step in self.steps:
            data = step(data)
        return data


def compile_pipe(pipe: Pipe) -> Program:
    """The program of a pipe.

    Raises:
        Misconfigured: a schema, secret, function or time zone that it names cannot be used.
    """
    declared = pipe.normalize
    steps: list[Callable[[bytes], bytes]] = []
    if declared.json_schema is not None:
        steps.append(_checked(checker(_schema(declared.json_schema))))
    if declared.function is not None:
        steps.append(load(declared.function))
    changes: list[Callable[[Tree], Tree]] = []
    if declared.fields is not None:
        changes.append(mapper(declared))
    if declared.mask:
        changes.append(_in_place(masker(declared.mask)))
    if changes:
        steps.append(_shaped(changes, frozenset(pipe.enrich.added())))
    elif added := pipe.enrich.added():
        steps.append(_freed(frozenset(added)))
    return Program(tuple(steps))


def _checked(check: Callable[[bytes], None]) -> Callable[[bytes], bytes]:
    def step(data: bytes) -> bytes:
        check(data)
        return data

    return step


def _in_place(change: Callable[[Tree], None]) -> Callable[[Tree], Tree]:
    def apply(tree: Tree) -> Tree:
        change(tree)
        return tree

    return apply


def _shaped(changes: list[Callable[[Tree], Tree]], removed: frozenset[str]) -> Callable[[bytes], bytes]:
    def step(data: bytes) -> bytes:
        tree = open_root(data)
        for change in changes:
            tree = change(tree)
        for name in removed & tree.keys():
            del tree[name]
        return encode(tree)

    return step


def _freed(removed: frozenset[str]) -> Callable[[bytes], bytes]:
    """Without the names that enrich adds; data that has none of them stays byte for byte."""

    def step(data: bytes) -> bytes:
        tree = open_root(data)
        found = removed & tree.keys()
        if not found:
            return data
        for name in found:
            del tree[name]
        return encode(tree)

    return step


def _schema(declared: dict[str, Any] | Path) -> dict[str, Any]:
    if isinstance(declared, dict):
        return declared
    try:
        loaded = json.loads(declared.read_bytes())
    except (OSError, ValueError) as error:
        raise Misconfigured(f"the schema {declared} cannot be read: {error}") from None
    if not isinstance(loaded, dict):
        raise Misconfigured(f"the schema {declared} is not an object")
    return loaded
