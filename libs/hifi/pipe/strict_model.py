"""Base class of the parts of a pipe."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError


class StrictModel(BaseModel):
    """A part of a pipe: immutable, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


def validation_problems(error: ValidationError) -> Iterator[tuple[list[str | int], str]]:
    """Path in the YAML and message of each problem."""
    for details in error.errors(include_url=False):
        yield [part for part in details["loc"] if _in_tree(part)], _sentence(details)


def _in_tree(part: str | int) -> bool:
    """Whether a part of an error's location is a key of the YAML; pydantic adds names of union branches."""
    return isinstance(part, int) or not (
        part[:1].isupper()
        or part.startswith(("function-", "constrained-", "literal[", "lax-or-strict", "dict["))
        or part in {"str", "[key]"}
    )


def _sentence(error: Any) -> str:
    kind, message = error["type"], error["msg"]
    if kind == "extra_forbidden":
        return "unknown key; see docs/pipes.md for the keys of this part"
    if kind == "missing":
        return "is missing"
    return str(message.removeprefix("Value error, "))
