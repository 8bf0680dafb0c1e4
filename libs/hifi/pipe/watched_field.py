"""The declaration of watched fields, and the names of the buckets that their values are counted in."""

import hashlib
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Annotated, Final

import orjson
from pydantic import Field, FiniteFloat, model_validator

from hifi.pipe.strict_model import StrictModel
from hifi.pipe.text_form import TextForm
from hifi.runtime.units import FieldName

MOST_FIELDS: Final = 16
"""Watched fields of a pipe, at most."""
NOTHING: Final = "!"
"""The bucket of events in which the field is missing, null or no number. It is no text that `url_encode` returns."""
OTHER: Final = "~"
"""The bucket of all values that have none of their own. It is no text that `url_encode` returns."""
GROWTH: Final = 1.1
"""With `buckets`, numbers are counted in fine buckets first, each 10 % wider than the one before."""
SMALLEST: Final = 1e-9
"""Numbers closer to zero count as this one, with their sign; zero has a bucket of its own."""
LARGEST: Final = 1e12
"""Numbers further from zero count as this one, with their sign."""


class WatchedField(StrictModel):
    """A [watched field](observe.md#watched-fields). Set `bounds`, `buckets` or `values`."""

    field: FieldName = Field(description="Field of `enrich`, declared or added.")
    bounds: Annotated[list[FiniteFloat], Field(min_length=1, max_length=50)] | None = Field(
        None, description="Ascending numbers that separate buckets; a bucket includes its lower bound."
    )
    buckets: int | None = Field(
        None,
        ge=2,
        le=50,
        description="Number of buckets of about equal size, whose bounds are learned.",
    )
    values: Annotated[
        Annotated[int, Field(ge=1, le=100)]
        | Annotated[list[str], Field(min_length=1, max_length=100)]
        | None,
        TextForm.DATA,
    ] = Field(
        None,
        description="Texts to count, or how many of the most frequent ones (first 64 characters).",
    )

    @model_validator(mode="after")
    def _consistent(self) -> "WatchedField":
        if sum(grouping is not None for grouping in (self.bounds, self.buckets, self.values)) != 1:
            raise ValueError("set exactly one of `bounds`, `buckets` and `values`")
        if self.bounds and not all(low < high for low, high in pairwise(self.bounds)):
            raise ValueError("`bounds` must ascend, each number once")
        if isinstance(self.values, list):
            if long_values := [value for value in self.values if len(value) > 64]:
                raise ValueError(f"`values` has {long_values[0][:20]!r}…; a value has at most 64 characters")
            if len(set(self.values)) < len(self.values):
                raise ValueError("`values` has a value more than once")
        return self


WatchedFields = Annotated[list[WatchedField], Field(max_length=MOST_FIELDS)]


def require_fields(watch: Sequence[WatchedField], declared_fields: Collection[str]) -> None:
    """Check the names of the fields that a pipe watches.

    Raises:
        ValueError: a field is unknown, or watched twice.
    """
    field_names = [watched_field.field for watched_field in watch]
    if unknown_names := sorted(set(field_names) - set(declared_fields)):
        raise ValueError(
            f"watch names {unknown_names}; declare them in `enrich.fields`, or add them in `enrich`"
        )
    if repeated_names := sorted({name for name in field_names if field_names.count(name) > 1}):
        raise ValueError(f"watch has {repeated_names} more than once")


def watch_id(watch: Sequence[WatchedField]) -> str:
    """Eight hex digits that change when the buckets of a pipe's events change: only equal ones can be compared.

    How many buckets or values are learned makes no difference: observe decides that when it compares.
    """
    fields = [
        [
            watched_field.field,
            watched_field.bounds,
            watched_field.buckets is not None,
            _listed_values(watched_field),
        ]
        for watched_field in watch
    ]
    return hashlib.blake2b(orjson.dumps(fields), digest_size=4).hexdigest()


def _listed_values(watched_field: WatchedField) -> list[str] | None:
    return watched_field.values if isinstance(watched_field.values, list) else None
