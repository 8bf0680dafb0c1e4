"""Finds what a pipe names and may not name."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from pydantic import BaseModel

from hifi.errors import Misconfigured
from hifi.pipe.limits import PipeLimits, pipe_limits
from hifi.pipe.model import Pipe
from hifi.pipe.secret import Secret

YamlPath: TypeAlias = tuple[str | int, ...]


def refusals(pipe: Pipe, limits: PipeLimits) -> Iterator[tuple[YamlPath, str]]:
    """Path in the pipe's YAML and reason of each secret and lookup file that the limits refuse."""
    for path, secret in _secrets(pipe, ()):
        reason = secret.refusal(limits)
        if reason is not None:
            yield path, reason
    for name, lookup in pipe.enrich.lookups.items():
        if lookup.file is not None and (reason := limits.refuse_lookup(lookup.file)):
            yield ("enrich", "lookups", name, "file"), reason


def functions(pipe: Pipe) -> Iterator[tuple[YamlPath, str]]:
    """Path in the pipe's YAML and name of each Python function."""
    if pipe.normalize.function is not None:
        yield ("normalize", "function"), pipe.normalize.function
    if pipe.enrich.udf is not None:
        yield ("enrich", "udf", "function"), pipe.enrich.udf.function


def require_allowed(pipes: Sequence[Pipe]) -> None:
    """Refuse to publish pipes that name secrets or lookup files that this process's limits refuse.

    Functions are not looked for: they may be on the services' machines only. `hifi check` and each service do.

    Raises:
        Misconfigured: the message lists everything that is refused.
    """
    limits = pipe_limits()
    lines = [
        f"{pipe.pipe}: {'.'.join(map(str, path))}: {reason}"
        for pipe in pipes
        for path, reason in refusals(pipe, limits)
    ]
    if lines:
        raise Misconfigured("no pipe was published:\n  " + "\n  ".join(lines))


def _secrets(node: Any, path: YamlPath) -> Iterator[tuple[YamlPath, Secret]]:
    if isinstance(node, Secret):
        yield path, node
    elif isinstance(node, BaseModel):
        for name, field in type(node).model_fields.items():
            yield from _secrets(getattr(node, name), (*path, field.alias or name))
    elif isinstance(node, dict):
        for key, value in node.items():
            yield from _secrets(value, (*path, key))
    elif isinstance(node, list | tuple):
        for index, value in enumerate(node):
            yield from _secrets(value, (*path, index))
