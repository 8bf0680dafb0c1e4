"""The declaration of a step, checked with Spark."""

from collections.abc import Sequence

from hifi.pipe.model import Pipe
from hifi.pipe.sources.step import StepSource
from hifi.runtime.errors import Misconfigured
from hifi.spark.catalyst import Catalyst
from hifi.spark.step_check import enriched_types, step_problems
from hifi_state.fold.declaration import StepDeclaration


def checked_declaration(catalyst: Catalyst, step: StepSource, read_pipes: Sequence[Pipe]) -> StepDeclaration:
    """The declaration of a step, whose SQL Spark has checked.

    Args:
        catalyst: of a session.
        step: as it is declared.
        read_pipes: those of `StepSource.inputs`, in order.

    Raises:
        Misconfigured: there are problems.
    """
    problems = [
        f"{'.'.join(map(str, path))}: {message}"
        for path, message in step_problems(catalyst, step, *read_pipes)
    ]
    if problems:
        raise Misconfigured("; ".join(problems))
    return StepDeclaration(step, [enriched_types(catalyst, read_pipe.enrich) for read_pipe in read_pipes])
