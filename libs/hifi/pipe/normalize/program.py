"""Compile the `normalize` section of a pipe into functions from data to data.

Order: schema, function or fields, masks, removal of the fields that enrich adds. Only secrets and files that the pipe
names are read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hifi.pipe.function_import import require_function
from hifi.pipe.limit_check import normalize_refusals
from hifi.pipe.limits import pipe_limits
from hifi.pipe.model import Pipe
from hifi.pipe.normalize.field_mapping import field_mapper
from hifi.pipe.normalize.json_schema import validator
from hifi.pipe.normalize.lazy_json import LazyObject, encode, open_object
from hifi.pipe.normalize.left_out import leaves_out
from hifi.pipe.normalize.masked_columns import masked_copies, record_key_masker
from hifi.pipe.normalize.masking import Masker
from hifi.runtime.errors import MaskUnavailable, Misconfigured, Rejected
from hifi.runtime.http.media_type import is_json


@dataclass(frozen=True, slots=True)
class NormalizeProgram:
    """The steps that a version of a pipe applies to data. Without steps, data passes unchanged and may be any bytes.

    Attributes:
        steps: in their order.
        function: `module:function`, which the caller calls between `prepare` and `finish`; None: there is none, and
            `run` does everything.
        prepared: with a function, the number of steps before it.
        masker: the step that masks; None: there is none.
        mask_key: masks the key of the record, see `record_key_masker`; None: it stays.
    """

    steps: tuple[Callable[[bytes], bytes], ...]
    function: str | None = None
    prepared: int = 0
    masker: Masker | None = None
    mask_key: Callable[[bytes | None], bytes | None] | None = None

    def run(self, data: bytes | None, content_type: bytes | None) -> bytes | None:
        """Apply the steps.

        Args:
            data: of the event; None or empty: the event has none.
            content_type: of the data; None: not declared.

        Raises:
            Rejected: with the reason `not-json`, `not-an-object`, `schema`, `cast`, `time`, `required` or
                `mapping-failed`.
        """
        if not self.steps:
            return data
        value = _json(data, content_type)
        for step in self.steps:
            value = step(value)
        return value

    def prepare(self, data: bytes | None, content_type: bytes | None) -> bytes:
        """Apply the steps before the function. Arguments and errors as in `run`."""
        value = _json(data, content_type)
        for step in self.steps[: self.prepared]:
            value = step(value)
        return value

    def finish(self, data: bytes) -> bytes:
        """Apply the steps after the function to what it returned. Errors as in `run`."""
        for step in self.steps[self.prepared :]:
            data = step(data)
        return data


def _json(data: bytes | None, content_type: bytes | None) -> bytes:
    """The data of an event whose pipe needs JSON."""
    if content_type is not None and not is_json(content_type):
        raise Rejected("not-json", "the pipe needs JSON, and the event's content type is not JSON")
    if not data:
        raise Rejected("not-json", "the pipe needs JSON, and the event has no data")
    return data


def compile_pipe(pipe: Pipe) -> NormalizeProgram:
    """Compile the `normalize` section of a pipe. Its function is looked up, but not imported.

    Raises:
        Misconfigured: a schema, secret, function or time zone of the pipe cannot be used.
    """
    normalize = pipe.normalize
    for _, reason in normalize_refusals(pipe, pipe_limits()):
        raise MaskUnavailable(reason)
    is_left_out = leaves_out(pipe)
    steps: list[Callable[[bytes], bytes]] = []
    if normalize.json_schema is not None:
        steps.append(_validate(validator(_schema(normalize.json_schema), is_left_out)))
    prepared = len(steps)
    if normalize.function is not None:
        require_function(normalize.function)
    changes: list[Callable[[LazyObject], LazyObject]] = []
    if normalize.fields is not None:
        changes.append(field_mapper(normalize, is_left_out))
    masker = Masker(normalize.mask, masked_copies(pipe)) if normalize.mask else None
    if masker is not None:
        changes.append(_in_place(masker.apply))
    if changes:
        steps.append(_change(changes, frozenset(pipe.enrich.added())))
    elif added_names := pipe.enrich.added():
        steps.append(_remove(frozenset(added_names)))
    return NormalizeProgram(tuple(steps), normalize.function, prepared, masker, record_key_masker(pipe))


def _validate(validate: Callable[[bytes], None]) -> Callable[[bytes], bytes]:
    def step(data: bytes) -> bytes:
        validate(data)
        return data

    return step


def _in_place(change: Callable[[LazyObject], object]) -> Callable[[LazyObject], LazyObject]:
    def apply(root: LazyObject) -> LazyObject:
        change(root)
        return root

    return apply


def _change(
    changes: list[Callable[[LazyObject], LazyObject]], removed_names: frozenset[str]
) -> Callable[[bytes], bytes]:
    """Apply changes, and remove the fields that enrich adds."""

    def step(data: bytes) -> bytes:
        root = open_object(data)
        for change in changes:
            root = change(root)
        for name in removed_names.intersection(root):
            del root[name]
        return encode(root)

    return step


def _remove(removed_names: frozenset[str]) -> Callable[[bytes], bytes]:
    """Remove the fields that enrich adds; data without them stays byte for byte."""

    def step(data: bytes) -> bytes:
        root = open_object(data)
        names_present = removed_names.intersection(root)
        if not names_present:
            return data
        for name in names_present:
            del root[name]
        return encode(root)

    return step


def _schema(schema: dict[str, Any] | Path) -> dict[str, Any]:
    if isinstance(schema, dict):
        return schema
    raise Misconfigured(f"the schema {schema} is a file; a published pipe has its schema in it")
