"""The base of every part of a pipe."""

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """A part of a pipe: unknown keys are errors, values do not change once read."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
