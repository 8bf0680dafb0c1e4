"""The declaration of a pipe. docs/pipes.md and the JSON Schema for editors are generated from this module."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    ConfigDict,
    Field,
    model_validator,
)

from hifi.pipe.declared_kind import DeclaredKind
from hifi.pipe.installed_kinds import DESTINATIONS, load_kind
from hifi.pipe.mask import Mask, MaskPath
from hifi.pipe.owner import Owner
from hifi.pipe.secret import Secret
from hifi.pipe.source import DeclaredSource
from hifi.pipe.strict_model import StrictModel
from hifi.pipe.text_form import TextForm
from hifi.pipe.watched_field import WatchedFields, require_fields
from hifi.runtime.errors import Misconfigured
from hifi.runtime.units import FieldName, FieldPath, Name, PerSecond, PythonPath, Seconds

HTTP: Final = "http"
"""Kind of destinations that name none."""
QueryTrigger = Literal["micro-batch", "real-time"]
"""Trigger of a Spark query. `real-time` has a lag of milliseconds and allows no UDF."""
Trigger = Literal["auto", "micro-batch", "real-time"]
"""Trigger that a stream is set to. `auto`: real-time, and micro-batch while a pipe has a UDF."""


class Cast(StrEnum):
    """A value that does not fit makes a dead letter."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"


class TimeRule(StrictModel):
    """How a time is read. It is written as RFC 3339 in UTC."""

    format: str = Field(
        "iso8601",
        description="`iso8601`, `epoch_s`, `epoch_ms`, `epoch_us`, or a strptime pattern with a year, such as "
        "`%d/%m/%Y %H:%M`; `%Z` reads UTC and GMT alone. Digits finer than microseconds are cut.",
    )
    zone: str = Field(
        "UTC",
        description="IANA time zone of times without one; those that it skips or has twice get the offset before.",
    )


class MapRule(StrictModel):
    """Source and conversion of a field."""

    from_: FieldPath | None = Field(
        None,
        alias="from",
        description="Path of the value; default: the field itself.",
    )
    cast: Cast | None = Field(None, description="Type to convert to.")
    time: TimeRule | None = Field(None, description="Read the value as a time; excludes `cast`.")
    default: Annotated[Any, TextForm.DATA] = Field(None, description="Value if missing or null.")
    required: bool = Field(False, description="Without value and `default`: dead letter.")

    @model_validator(mode="after")
    def _cast_or_time(self) -> "MapRule":
        if self.cast and self.time:
            raise ValueError("`cast` and `time` exclude each other")
        return self


class Normalize(StrictModel):
    """Validates and changes data: `schema`, `function` or `fields`, `mask`."""

    json_schema: Annotated[dict[str, Any] | Path | None, TextForm.DATA] = Field(
        None,
        alias="schema",
        description="JSON Schema (2020-12) of data as sent, inline or a path relative to the pipe.",
    )
    function: PythonPath | None = Field(
        None,
        description="Python function `module:function` from a dict to the new data; excludes `fields`. Of its result "
        "decimals are text, bytes base64, NaN and infinity a dead letter.",
    )
    fields: dict[FieldPath, FieldPath | MapRule] | None = Field(
        None, description="Field to set, and the path of its value or a rule."
    )
    keep: Literal["all", "mapped"] = Field(
        "all", description="With `fields`: keep all fields, or only mapped ones."
    )
    mask: dict[MaskPath, Mask] = Field(
        default={},
        description="Sensitive field, and its mask, in arrays too; a name with dots is a path, too.",
    )

    @model_validator(mode="after")
    def _one_mapping(self) -> "Normalize":
        if self.function and self.fields is not None:
            raise ValueError("`function` and `fields` exclude each other")
        return self


class SqlType(StrEnum):
    """Spark SQL type that a JSON field is read as."""

    STRING = "string"
    BOOLEAN = "boolean"
    INT = "int"
    BIGINT = "bigint"
    DOUBLE = "double"
    DATE = "date"
    TIMESTAMP = "timestamp"


class SqlTable(StrictModel):
    """A query of a SQL database, read with SQLAlchemy."""

    url: Secret = Field(description="SQLAlchemy URL, user and password percent-encoded (`%40` for `@`).")
    query: Annotated[str, TextForm.LINES] = Field(
        min_length=1, description="SELECT that returns the whole table."
    )


class Lookup(StrictModel):
    """A table joined to events, kept in memory."""

    file: Path | None = Field(
        None, description="CSV with a header, JSON (array or lines) or Parquet, by suffix."
    )
    sql: SqlTable | None = Field(None, description="Query, instead of `file`.")
    key: dict[FieldName, str] = Field(
        min_length=1,
        description="Field (of `fields` or an earlier lookup), and the column that it must equal.",
    )
    fields: dict[FieldName, str] = Field(min_length=1, description="Field to add, and its column.")
    types: dict[str, SqlType] = Field(default={}, description="Column, and its type; default: string.")
    miss: Literal["null", "default", "dead-letter"] = Field("null", description="Result if no row matches.")
    default: Annotated[dict[FieldName, Any], TextForm.DATA] = Field(
        default={}, description="With `miss: default`: field, and its value."
    )
    refresh: Seconds = Field(120, gt=0, description="Time between reloads.")
    expire: Seconds = Field(
        30 * 86400, gt=0, description="Age from which a table that cannot be reloaded is unused."
    )
    shrink: float = Field(
        0.5,
        ge=0,
        le=1,
        description="Largest share of rows, or of a field's values, that a reload may lose; else the old table "
        "stays, with a warning on `/readyz`. 1: any.",
    )

    @model_validator(mode="after")
    def _consistent(self) -> "Lookup":
        if (self.file is None) == (self.sql is None):
            raise ValueError("set exactly one of `file` and `sql`")
        if self.file is not None and self.file.suffix not in {
            ".csv",
            ".json",
            ".ndjson",
            ".jsonl",
            ".parquet",
        }:
            raise ValueError(f"{self.file.name}: the suffix must be .csv, .json, .ndjson, .jsonl or .parquet")
        if bool(self.default) != (self.miss == "default"):
            raise ValueError("`default` and `miss: default` need each other")
        if unknown_names := set(self.default) - set(self.fields):
            raise ValueError(f"`default` names {sorted(unknown_names)}, which `fields` does not have")
        return self


class DerivedField(StrictModel):
    """A field computed by a Spark SQL expression."""

    sql: Annotated[str, TextForm.SQL] = Field(min_length=1, description="Spark SQL expression.")
    required: bool = Field(False, description="Events with a null result become dead letters.")


class Udf(StrictModel):
    """A Python function on pandas data. The stream then runs in micro-batches."""

    function: PythonPath = Field(
        description="Function from a DataFrame with the columns `args` to one with `returns`; called with "
        "made-up values at start. Rows whose whole-number and boolean arguments have other nulls are called apart, "
        "which takes time."
    )
    args: list[FieldName] = Field(min_length=1, description="Fields passed to it.")
    returns: dict[FieldName, SqlType] = Field(
        min_length=1, description="Fields that it adds, and their types."
    )


class Enrich(StrictModel):
    """Enriches on Spark: `lookups`, `derive`, `udf`, `filter`, in this order."""

    fields: dict[FieldName, SqlType] = Field(
        default={},
        description="Fields for SQL and lookups, and their types; values that do not fit are null.",
    )
    required: list[FieldName] = Field(
        default=[], description="Fields whose null makes an event a dead letter."
    )
    lookups: dict[Name, Lookup] = Field(default={}, description="Tables to join, in this order.")
    derive: Annotated[dict[FieldName, str | DerivedField], TextForm.SQL] = Field(
        default={},
        description="Field to add, and a Spark SQL expression of `fields` and fields added before.",
    )
    udf: Udf | None = Field(None, description="Python function that adds fields.")
    filter: Annotated[str | None, TextForm.SQL] = Field(
        None,
        min_length=1,
        description="Spark SQL condition; other events end with the outcome `filtered`.",
    )

    @model_validator(mode="after")
    def _unique_names(self) -> "Enrich":
        section_by_name = dict.fromkeys(self.fields, "fields")
        names_by_section: list[tuple[str, Iterable[str]]] = [
            *((f"lookups.{name}", lookup.fields) for name, lookup in self.lookups.items()),
            ("derive", self.derive),
            ("udf.returns", self.udf.returns if self.udf else ()),
        ]
        for section, names in names_by_section:
            for name in names:
                if name in section_by_name:
                    raise ValueError(
                        f"{section} sets {name!r}, which {section_by_name[name]} sets already; choose another name"
                    )
                section_by_name[name] = section
        available_names = set(self.fields)
        for name, lookup in self.lookups.items():
            if unknown_names := set(lookup.key) - available_names:
                raise ValueError(
                    f"lookups.{name}.key uses {sorted(unknown_names)}; declare them in `fields` with their types"
                )
            available_names |= set(lookup.fields)
        if unknown_names := set(self.required) - available_names:
            raise ValueError(
                f"required names {sorted(unknown_names)}; declare them in `fields` or in a lookup"
            )
        available_names |= set(self.derive)
        if self.udf and (unknown_names := set(self.udf.args) - available_names):
            raise ValueError(
                f"udf.args uses {sorted(unknown_names)}, which are not in `fields`, `lookups` or `derive`"
            )
        return self

    def added(self) -> set[str]:
        """Names of the top-level fields that enrich adds; they replace fields of the same name in the data."""
        field_names = {name for lookup in self.lookups.values() for name in lookup.fields} | set(self.derive)
        return field_names | set(self.udf.returns if self.udf else ())


class BatchPolicy(StrictModel):
    """Several events in one request, as a JSON array or a CloudEvents batch."""

    size: int = Field(100, ge=2, le=10_000, description="Largest number of events.")
    bytes: int = Field(1_048_576, ge=1024, description="Largest body; one event may exceed it.")
    wait: Seconds = Field(0.05, le=5, description="Time that an event waits for others, at most 5 s.")


class RetryPolicy(StrictModel):
    """When a failed request is [retried](receive-events.md#responses)."""

    local_attempts: int = Field(
        3,
        ge=1,
        le=10,
        description="Attempts by egest within about a second, before a retry tier.",
    )
    max_attempts: int = Field(20, ge=1, description="Attempts until the delivery becomes a dead letter.")
    max_age: Seconds = Field(
        86400,
        description="Time from the first attempt to the dead letter; parking restarts it.",
    )
    max_pause: Seconds = Field(
        3600,
        gt=0,
        description="Longest pause that the destination gets for its `Retry-After`; then it gets a request.",
    )
    also: list[Annotated[int, Field(ge=300, le=599)]] = Field(
        default=[], description="Further statuses to retry."
    )
    never: list[Annotated[int, Field(ge=300, le=599)]] = Field(
        default=[], description="Statuses that make a dead letter at once."
    )


class BreakerPolicy(StrictModel):
    """The circuit breaker."""

    failures: int = Field(
        10,
        ge=1,
        description="Failures in a row that open it; equal 401, 403 or 404 count too.",
    )
    probe: Seconds = Field(5, gt=0, description="Time until the first probe; doubles up to a minute.")


class Timely(StrictModel):
    """When the [watermark](observe.md#watermark) is `current` rather than `degraded`."""

    within: Seconds = Field(5, gt=0, description="Most that `settled_until` may be behind.")
    failures: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="Largest share of `failures_1m` of a service, such as 0.01; default: any.",
    )


class Slo(StrictModel):
    """Service level objective of each minute."""

    p95: Seconds = Field(1, gt=0, description="Time from acceptance within which 95 % of deliveries succeed.")
    loss: int = Field(0, ge=0, description="Lost events per minute that are tolerated.")
    timely: Timely = Field(Timely(), description="When the watermark is `current`.")


class Destination(StrictModel):
    """Keys of destinations of all kinds."""

    name: Name = Field(description="Name, unique in the pipe.")
    when: Annotated[str | None, TextForm.SQL] = Field(
        None,
        min_length=1,
        description="Spark SQL condition on all fields, not met where it is null; default: every event.",
    )
    transform: Annotated[str | None, TextForm.LINES] = Field(
        None,
        description="JMESPath expression for the data to send; at most 2 MiB in and out.",
    )
    slo: Slo | None = Field(None, description="SLO; default: the pipe's.")
    concurrency: int = Field(16, ge=1, le=1000, description="Most requests in flight per instance of egest.")
    rate: PerSecond | None = Field(None, description="Largest request rate of all instances together.")
    timeout: Seconds = Field(
        10, gt=0, le=30, description="Time from connecting to the status line, at most 30 s."
    )
    batch: BatchPolicy | None = Field(None, description="Send several events per request; default: one.")
    ordered: Literal["key", "none"] = Field(
        "key",
        description="`key`: in order of each key, one request at a time; `none`: any order.",
    )
    retry: RetryPolicy = Field(RetryPolicy(), description="When failed requests are retried.")
    breaker: BreakerPolicy = Field(BreakerPolicy(), description="When requests stop after failures.")
    kind: Name = Field(HTTP, description="Kind.")

    def watermark_interval_s(self) -> float | None:
        """How often egest tells the destination the watermark, seconds; None: it does not ask for it."""
        return None


class ConnectorDestination(Destination):
    """A destination of another kind. A request is one write of a batch."""

    kind: Name = Field(description="Kind of the destination, provided by an installed package.")
    settings: Annotated[dict[str, Any], TextForm.DATA] = Field(
        default={}, description="Settings of the kind; see [Destinations](destinations.md)."
    )
    batch: BatchPolicy | None = Field(BatchPolicy(), description="Write several events at once; null: one.")
    timeout: Seconds = Field(10, gt=0, le=30, description="Time of one write.")


class UnreadableDestination(Destination):
    """An HTTP destination in a process without its package, as it is declared. Only egest and checks need its keys."""

    model_config = ConfigDict(extra="allow")


@dataclass(frozen=True)
class SelfDeclaredKind:
    """A kind of destinations whose keys stand beside those of all destinations, not under `settings`.

    Attributes:
        declaration: class of such a destination.
    """

    declaration: type[Destination]


@lru_cache
def http_declaration() -> type[Destination]:
    """The declaration of HTTP destinations, as the installed package has it."""
    try:
        return load_kind(DESTINATIONS, HTTP, SelfDeclaredKind).declaration
    except Misconfigured:
        return UnreadableDestination


def destination_declarations() -> list[type[Destination]]:
    """The declarations of destinations that are part of hifi."""
    return [http_declaration(), ConnectorDestination]


def _destination_class(declaration: Any) -> type[Destination]:
    """The class of a declared destination, by its kind."""
    kind = (
        declaration.get("kind", HTTP) if isinstance(declaration, dict) else getattr(declaration, "kind", HTTP)
    )
    return http_declaration() if kind == HTTP else ConnectorDestination


def _read_destination(declaration: Any) -> Destination:
    if isinstance(declaration, Destination):
        return declaration
    return _destination_class(declaration).model_validate(declaration)


DeclaredDestination: TypeAlias = Annotated[
    Destination,
    DeclaredKind(
        _read_destination,
        lambda: {model.__name__: model for model in destination_declarations()},
        lambda declaration: _destination_class(declaration).__name__,
    ),
]


class Pipe(StrictModel):
    """A pipe."""

    pipe: Name = Field(description="Name of the pipe.")
    description: Annotated[str, TextForm.LINES] = Field("", description="Note for readers.")
    owner: Owner | None = Field(None, description="Who is responsible for the pipe.")
    source: DeclaredSource = Field(description="How events come to the pipe.")
    normalize: Normalize = Field(Normalize(), description="How data is validated and changed.")
    enrich: Enrich = Field(Enrich(), description="How data is joined, derived and filtered.")
    destinations: list[DeclaredDestination] = Field(min_length=1, description="Where events are delivered.")
    slo: Slo = Field(Slo(), description="Service level objective.")
    watch: WatchedFields = Field(default=[], description="Fields whose distribution is watched.")

    @model_validator(mode="after")
    def _consistent(self) -> "Pipe":
        names = [destination.name for destination in self.destinations]
        if repeated_names := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"destinations has {repeated_names} more than once; names must differ")
        require_fields(self.watch, self.enrich.fields.keys() | self.enrich.added())
        return self

    def destination(self, name: str) -> Destination | None:
        """The destination of that name, or None."""
        return next((destination for destination in self.destinations if destination.name == name), None)
