"""The declaration of a step: results of a pipe's events over stretches of time, which enter as events of this pipe.

The service state reads the events of the other pipe on `enriched`. See docs/steps.md.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Final, Literal, NamedTuple

from pydantic import Field, model_validator

from hifi.pipe.event_type import EventType
from hifi.pipe.sources.collected import Backfill, CollectedSource
from hifi.pipe.strict_model import StrictModel
from hifi.pipe.text_form import TextForm
from hifi.runtime.units import FieldName, Name, Seconds

MOST_WINDOWS: Final = 100
"""Largest number of sliding windows that an event is in."""
MOST_OPEN: Final = 10_000
"""Largest number of windows of a key that `lateness` keeps open."""
DEFAULT_LIMIT: Final = 10_000
DEFAULT_JOIN_LIMIT: Final = 1_000
"""The pairs of a key may be as many as its square."""
_MOST_FIELDS: Final = 50
_LONGEST_S: Final = 25 * 3600
"""Of window and lateness together, a day and an hour: a lost state is computed anew from that much of `enriched`."""
PARTIAL: Final = "partial"
"""Field of a result that may lack events, which the other colour of the stream has."""
_RESERVED: Final = ("window_start", "window_end", PARTIAL)
_RESERVED_OF_EACH: Final = (*_RESERVED, "event")
_RESERVED_OF_JOIN: Final = ("event", "with")
_WHOLE: Final = 1000
_WINDOW_TYPE: Final = b"hifi.window"
_JOIN_TYPE: Final = b"hifi.join"
_CALL: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*\((.*)\)\s*", re.DOTALL)
_KINDS: Final = "`window`, `each`, `first` and `join`"


class AggregateFunction(StrEnum):
    """A function of all events of a window: the same whatever their order, and made of parts that can be merged."""

    AVG = "avg"
    COUNT = "count"
    COUNT_IF = "count_if"
    MAX = "max"
    MIN = "min"
    SUM = "sum"


_ORDER: Final = "depends on the order of events, so a repeated computation could give another result"
_GROWS: Final = "grows with every event of the window"
_NOT_ALLOWED: Final[Mapping[str, str]] = {
    **dict.fromkeys(("first", "first_value", "last", "last_value", "any_value", "mode", "listagg"), _ORDER),
    **dict.fromkeys(("collect_list", "collect_set", "array_agg", "string_agg"), _GROWS),
}


class Aggregate(NamedTuple):
    """A field of a step, as it is declared."""

    function: AggregateFunction
    argument: str | None
    """SQL of one event's value; None: `*`."""


def read_aggregate(text: str) -> Aggregate:
    """Read a call such as `sum(amount)`.

    Raises:
        ValueError: it is no call of one of the functions.
    """
    call = _CALL.fullmatch(text)
    function_names = ", ".join(AggregateFunction)
    if call is None:
        raise ValueError(
            f"{text!r} is not one call of {function_names}; compute with its result in `enrich.derive` of this pipe"
        )
    name, argument = call[1].lower(), call[2].strip()
    if name not in set(AggregateFunction):
        reason = _NOT_ALLOWED.get(name, "is not a function of a step")
        raise ValueError(f"the function `{name}` {reason}; use {function_names}")
    function = AggregateFunction(name)
    if argument == "*":
        if function is not AggregateFunction.COUNT:
            raise ValueError(f"{name}(*) is not allowed; only count(*) is")
        return Aggregate(function, None)
    if not argument or re.match(r"distinct\b", argument, re.IGNORECASE):
        raise ValueError(f"{text!r} must have one argument, without DISTINCT")
    return Aggregate(function, argument)


class StepKey(StrEnum):
    """Type of a field of a key."""

    # No double: values that should be equal differ in the last digit.

    STRING = "string"
    INT = "int"
    BIGINT = "bigint"
    BOOLEAN = "boolean"
    DATE = "date"


class StepWindow(StrictModel):
    """Windows of a step: `session`; or `tumbling`, or `size` with `every`, which begin at multiples since 1970 UTC."""

    tumbling: Seconds | None = Field(None, ge=1, description="Length of windows that follow each other.")
    size: Seconds | None = Field(None, ge=1, description="Length of windows that overlap.")
    every: Seconds | None = Field(
        None, ge=1, description="Time from the start of one to the next; it divides `size`."
    )
    session: Seconds | None = Field(
        None, ge=1, description="Longest time between neighbouring events of a session."
    )

    @model_validator(mode="after")
    def _consistent(self) -> "StepWindow":
        if sum(length_s is not None for length_s in (self.tumbling, self.size, self.session)) != 1:
            raise ValueError("set exactly one of `tumbling`, `size` and `session`")
        if (self.size is None) != (self.every is None):
            raise ValueError("`size` and `every` need each other")
        for name in ("tumbling", "size", "every", "session"):
            length_s = getattr(self, name)
            if length_s is not None and length_s != int(length_s):
                raise ValueError(f"`{name}` must be whole seconds")
        if self.size is not None and self.every is not None:
            if self.every > self.size or self.size % self.every:
                raise ValueError("`size` must be a multiple of `every`")
            if self.size / self.every > MOST_WINDOWS:
                raise ValueError(
                    f"an event would be in more than {MOST_WINDOWS} windows; choose a longer `every`"
                )
        return self

    @property
    def size_ms(self) -> int:
        """Length of a window, milliseconds; that of a session with one event."""
        return int(self.tumbling or self.size or self.session or 0) * _WHOLE

    @property
    def every_ms(self) -> int:
        """Time from the start of one window to the next, milliseconds; 0: they are sessions."""
        return int(self.tumbling or self.every or 0) * _WHOLE

    @property
    def gap_ms(self) -> int | None:
        """Longest time between two events that follow each other in a session, milliseconds; None: no sessions."""
        return None if self.session is None else self.size_ms


class StepEach(StrictModel):
    """A result for each event."""

    trailing: Seconds = Field(
        ge=1,
        description="The events of its key count in it that are at most so long before it, and those of its time.",
    )


class StepJoin(StrictModel):
    """A result for each pair of an event of `from` and one of `with`."""

    with_: Name = Field(alias="with", description="The other pipe.")
    within: Seconds = Field(ge=1, description="Longest time between the two events of a pair.")
    where: Annotated[str | None, TextForm.SQL] = Field(
        None, min_length=1, description="Spark SQL condition for events of `with`; others are left out."
    )
    fields: Annotated[dict[FieldName, str], TextForm.SQL] = Field(
        {},
        max_length=_MOST_FIELDS,
        description="Field of the result, and Spark SQL of its value from an event of `with`.",
    )
    unmatched: Literal["drop", "keep"] = Field(
        "drop",
        description="Whether an event of `from` without a partner has a result, too, with null for the other.",
    )


class StepInput(NamedTuple):
    """The input of a step from one pipe.

    Attributes:
        pipe: name.
        where: SQL of the condition; None: all its events are read.
        fields: of the result, which are made of its events.
        path: of the keys that declare this, in `source`.
        name_key: key of the name there.
    """

    pipe: str
    where: str | None
    fields: Mapping[str, str]
    path: tuple[str, ...]
    name_key: str


class StepSource(CollectedSource):
    """Results of other pipes' events, by key: of `window`, `each`, `first` or `join`. [Experimental](steps.md)."""

    kind: Literal["step"] = Field(description="Kind.")
    from_: Name = Field(alias="from", description="Pipe whose events are read.")
    where: Annotated[str | None, TextForm.SQL] = Field(
        None, min_length=1, description="Spark SQL condition; other events are left out."
    )
    key: dict[FieldName, StepKey] = Field(
        min_length=1,
        max_length=8,
        description="Fields whose values have results of their own. One that is null: dead letter `no-key`.",
    )
    window: StepWindow | None = Field(None, description="One result for each window.")
    each: StepEach | None = Field(None, description="One result for each event.")
    first: Seconds | None = Field(
        None,
        ge=1,
        description="An event passes on as it is, unless another of its key is at most so long before it.",
    )
    join: StepJoin | None = Field(None, description="One result for each pair with an event of another pipe.")
    lateness: Seconds = Field(
        30, description="How far an event's time may be behind the watermark; else: dead letter `late`."
    )
    fields: Annotated[dict[FieldName, str], TextForm.SQL] = Field(
        {},
        max_length=_MOST_FIELDS,
        description="Field of the result, and one call of `avg`, `count`, `count_if`, `max`, `min` or `sum`; none with"
        " `first`, with `join` Spark SQL of its value.",
    )
    limit: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="Most events of a key that count in a stretch as long as `trailing`, `first` or `within`, of each"
        " pipe and partition; default: 10,000, with `join` 1,000. Others: dead letter `key-limit`.",
    )
    type: EventType | None = Field(
        None,
        description="CloudEvents `type` of the results; default: `hifi.window`, with `join` `hifi.join`, with `first`"
        " that of the event.",
    )

    @model_validator(mode="after")
    def _of_one_kind(self) -> "StepSource":
        if sum(kind is not None for kind in (self.window, self.each, self.first, self.join)) != 1:
            raise ValueError(f"set exactly one of {_KINDS}")
        if self.first is not None and self.fields:
            raise ValueError("`first` passes events on as they are; leave out `fields`")
        if self.first is None and not self._result_fields:
            raise ValueError("`fields` must have at least one field of the result")
        if self.length_ms % _WHOLE:
            raise ValueError(f"{self._length_key} must be whole seconds")
        times, factor = ("twice ", 2) if self.join is not None else ("", 1)
        if factor * self.length_ms + self.lateness_ms > _LONGEST_S * _WHOLE:
            raise ValueError(f"{times}{self._length_key} and `lateness` together must be at most 25 h")
        return self

    @model_validator(mode="after")
    def _bounded(self) -> "StepSource":
        if self.window is None:
            return self
        if self.limit is not None:
            raise ValueError(
                "`limit` is for `each`, `first` and `join`; a window is as large with any number of events"
            )
        apart_ms = self.gap_ms or self.window.every_ms
        if self.length_ms + self.lateness_ms > MOST_OPEN * apart_ms:
            raise ValueError(
                f"a key would have more than {MOST_OPEN:,} open windows; choose longer ones or a shorter `lateness`"
            )
        return self

    @model_validator(mode="after")
    def _consistent(self) -> "StepSource":
        field_names = [*self.key, *self._result_fields]
        if repeated_names := sorted({name for name in field_names if field_names.count(name) > 1}):
            raise ValueError(f"`key` and `fields` have {repeated_names}; names must differ")
        if reserved_names := sorted(name for name in field_names if name in self._reserved):
            raise ValueError(f"{reserved_names} are fields that each result has; choose other names")
        self._require_calls()
        if self.backfill != Backfill():
            raise ValueError("a step has no `backfill`; leave it out")
        if self.lateness != round(self.lateness, 3):
            raise ValueError("`lateness` must be whole milliseconds")
        return self

    @model_validator(mode="after")
    def _joins_another_pipe(self) -> "StepSource":
        if self.join is not None and self.join.with_ == self.from_:
            raise ValueError("join.with: a step cannot join a pipe with itself; name another pipe")
        return self

    def _require_calls(self) -> None:
        """Check that each field is one call of an aggregate function, or none with `join`."""
        if self.join is None:
            for name, text in self.fields.items():
                try:
                    read_aggregate(text)
                except ValueError as error:
                    raise ValueError(f"fields.{name}: {error}") from None
            return
        for step_input in self.inputs:
            for name, text in step_input.fields.items():
                call = _CALL.fullmatch(text)
                if call is not None and call[1].lower() in set(AggregateFunction):
                    path = ".".join((*step_input.path, "fields", name))
                    raise ValueError(
                        f"{path}: a join has a result for each pair and aggregates nothing; {text!r} needs `window` or"
                        " `each` instead of `join`"
                    )

    @property
    def inputs(self) -> tuple[StepInput, ...]:
        """The inputs of the step: from the pipe `from`, and from the pipe `with` if it is a join."""
        read_input = StepInput(self.from_, self.where, self.fields, (), "from")
        if self.join is None:
            return (read_input,)
        join = self.join
        return read_input, StepInput(join.with_, join.where, join.fields, ("join",), "with")

    @property
    def read_pipes(self) -> tuple[str, ...]:
        """Names of the pipes that the step reads, as `inputs`."""
        return tuple(step_input.pipe for step_input in self.inputs)

    @property
    def _result_fields(self) -> list[str]:
        return [name for step_input in self.inputs for name in step_input.fields]

    @property
    def _reserved(self) -> tuple[str, ...]:
        if self.join is not None:
            return _RESERVED_OF_JOIN
        return () if self.first else _RESERVED_OF_EACH if self.each else _RESERVED

    @property
    def _length_key(self) -> str:
        if self.join is not None:
            return "`join.within`"
        return "`window`" if self.window else "`each.trailing`" if self.each else "`first`"

    @property
    def length_ms(self) -> int:
        """Length of a window, or the longest time between an event and another one that counts, milliseconds."""
        if self.window is not None:
            return self.window.size_ms
        if self.join is not None:
            return round(self.join.within * _WHOLE)
        return round((self.each.trailing if self.each else self.first or 0) * _WHOLE)

    @property
    def gap_ms(self) -> int | None:
        """See `StepWindow.gap_ms`; None: no sessions."""
        return None if self.window is None else self.window.gap_ms

    @property
    def reach_ms(self) -> int | None:
        """How long before a time an event may be that counts in a result of that time or later, milliseconds.

        None: sessions have no longest length.
        """
        if self.gap_ms is not None:
            return None
        if self.join is not None:  # an event that leaves looks for partners before it, too
            return 2 * self.length_ms
        return self.length_ms if self.window is None else self.length_ms - 1

    @property
    def most_events(self) -> int | None:
        """How many events of a key, pipe and partition count in a stretch of `length_ms`; None: all do.

        Stretches follow each other from 1970 UTC on, so that whether an event counts depends on no earlier stretch.
        """
        if self.window is not None:
            return None
        return self.limit or (DEFAULT_LIMIT if self.join is None else DEFAULT_JOIN_LIMIT)

    def needed_from_ms(self, time_ms: int) -> int | None:
        """No earlier event changes a result of a time or later, milliseconds since 1970 UTC; None: not known.

        Args:
            time_ms: milliseconds since 1970 UTC.
        """
        if self.reach_ms is None:
            return None
        from_ms = time_ms - self.reach_ms
        return from_ms if self.most_events is None else from_ms - from_ms % self.length_ms

    @property
    def result_type(self) -> bytes | None:
        """CloudEvents `type` of the results; None: that of the event."""
        if self.type is not None:
            return self.type.encode()
        if self.first is not None:
            return None
        return _WINDOW_TYPE if self.join is None else _JOIN_TYPE

    @property
    def lateness_ms(self) -> int:
        """How far an event's time may be behind the watermark, milliseconds."""
        return round(self.lateness * _WHOLE)

    @property
    def aggregates(self) -> dict[str, Aggregate]:
        """The fields, read; those of a join are none."""
        if self.join is not None:
            return {}
        return {name: read_aggregate(text) for name, text in self.fields.items()}

    def identifying(self) -> list[tuple[str, str]]:
        """Setting and path of each such field, as of all sources."""
        return [("key", name) for name in self.key]
