"""Finds what steps may not read, and those that cannot be in a stream of two colours. Pure."""

from collections.abc import Iterator, Mapping

from hifi.pipe.model import Pipe
from hifi.pipe.named_secrets import YamlPath
from hifi.pipe.sources.step import StepSource


def step_refusals(pipe: Pipe, pipes: Mapping[str, Pipe]) -> Iterator[tuple[YamlPath, str]]:
    """Path in a pipe's YAML and reason of what its step may not read.

    Args:
        pipe: any.
        pipes: all, by name.
    """
    step = pipe.source
    if not isinstance(step, StepSource):
        return
    for step_input in step.inputs:
        read_name = step_input.pipe
        path: YamlPath = ("source", *step_input.path, step_input.name_key)
        read_pipe = pipes.get(read_name)
        if read_name == pipe.pipe:
            yield path, "a step cannot read its own results"
        elif read_pipe is None:
            other_pipes = ", ".join(sorted(pipes.keys() - {pipe.pipe})) or "none"
            yield path, f"the pipe {read_name!r} is not declared; declared are {other_pipes}"
        elif isinstance(read_pipe.source, StepSource):
            yield path, f"the pipe {read_name!r} is a step, too; steps of steps are not supported yet"
        else:
            for name, kind in step.key.items():
                declared_kind = read_pipe.enrich.fields.get(name)
                if declared_kind is not None and declared_kind.value != kind.value:
                    reason = f"the pipe {read_name!r} declares {name} as {declared_kind.value}; use one type"
                    yield ("source", "key", name), reason


def refuse_two_colours(step: StepSource) -> str | None:
    """Why a step cannot be in a stream of two colours; None: it can, and its results are marked where they are partial.

    Args:
        step: declared.
    """
    if step.first is not None:
        return (
            "`first` would pass an event on whose key the other colour has passed, with no mark in its data; let the"
            " destination drop what it has, or count with `each`"
        )
    if step.join is not None:
        return "`join` would miss pairs of events that are not in one colour, and what is missing cannot be marked"
    return None
