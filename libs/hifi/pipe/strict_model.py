"""Base class of the parts of a pipe."""

from pydantic import BaseModel, ConfigDict


class StrictModel(BaseModel):
    """A part of a pipe: immutable, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)
