"""The declaration that decides the windows of a step, as the record on `folds` has it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import orjson

from hifi.pipe.sources.step import StepSource


@dataclass(frozen=True)
class StepDeclaration:
    """The declaration of a step, and what it uses of the pipes that it reads.

    Attributes:
        step: the declaration, checked.
        types: for each of `StepSource.inputs`, name to SQL type of the fields that it can read.
    """

    step: StepSource
    types: Sequence[Mapping[str, str]]

    @cached_property
    def text(self) -> str:
        """The declaration as text; another text is another declaration."""
        step = self.step.model_dump(mode="json", by_alias=True)
        return orjson.dumps({"step": step, "types": list(map(dict, self.types))}).decode()

    @classmethod
    def of_text(cls, text: str) -> "StepDeclaration":
        """Read `text`.

        Raises:
            ValueError, KeyError, TypeError: it is something else.
        """
        body = orjson.loads(text)
        return cls(StepSource.model_validate(body["step"]), body["types"])
