"""The declared model of a pipe. The reference page and the JSON Schema for editors are made from this module."""

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, HttpUrl, model_validator

from hifi.pipe.secret import Secret, WriteKey
from hifi.pipe.strict import Strict
from hifi.units import FieldName, FieldPath, Name, PerSecond, PythonPath, Seconds

Trigger = Literal["micro-batch", "real-time"]
"""Trigger of the Spark query that a stream's pipes run with. `real-time` allows no UDF."""


class Format(StrEnum):
    """What a sender may send."""

    CLOUDEVENTS = "cloudevents"
    JSON = "json"


class Source(Strict):
    """How events come in."""

    keys: list[WriteKey] = Field(min_length=1, description="Write keys, any of which lets a sender in.")
    formats: list[Format] = Field(
        default=[Format.CLOUDEVENTS, Format.JSON], min_length=1, description="Accepted formats."
    )
    type: str = Field(
        "hifi.event", min_length=1, description="CloudEvents `type` of events sent as plain JSON."
    )
    id: FieldPath | None = Field(
        None,
        description="Field of plain JSON that is the event's id; default: `Idempotency-Key`, else a new UUIDv7.",
    )
    time: FieldPath | None = Field(
        None,
        description="Field of plain JSON that is the event's time, RFC 3339; default: when it was accepted.",
    )
    partition_key: FieldPath | None = Field(
        None, description="Field of plain JSON by which order is kept; default: the event's id."
    )


class Cast(StrEnum):
    """What a value is turned into. A value that does not fit is a dead letter."""

    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"


class TimeRule(Strict):
    """How a time is read. It is written as RFC 3339 in UTC with microseconds."""

    format: str = Field(
        "iso8601",
        description="`iso8601`, `epoch_s`, `epoch_ms`, `epoch_us`, or a strptime pattern such as `%d/%m/%Y %H:%M`.",
    )
    zone: str = Field("UTC", description="IANA time zone of times that name none.")


class MapRule(Strict):
    """Where a field comes from and what it becomes."""

    from_: FieldPath | None = Field(
        None,
        alias="from",
        description="Path of the value in the event's data; default: the field's own name.",
    )
    cast: Cast | None = None
    time: TimeRule | None = None
    default: Any = Field(None, description="Used when the value is missing or null.")
    required: bool = Field(False, description="Missing or null, with no default: the event is a dead letter.")

    @model_validator(mode="after")
    def _cast_or_time(self) -> "MapRule":
        if self.cast and self.time:
            raise ValueError("a field is either cast or read as a time, not both")
        return self


class Hash(Strict):
    """HMAC-SHA256 with a secret key, as lower-case hex: the same value gives the same hash, nobody else can make it."""

    hash: Secret


Mask = Literal["drop", "redact"] | Hash


class Normalize(Strict):
    """Checks and shapes the data. In this order: schema, function or fields, masks."""

    json_schema: dict[str, Any] | Path | None = Field(
        None,
        alias="schema",
        description="JSON Schema (2020-12) of the data as it is sent: inline, or a file beside the pipe.",
    )
    function: PythonPath | None = Field(
        None,
        description="`module:function` taking the data (a dict) and returning the new data; instead of `fields`.",
    )
    fields: dict[FieldPath, FieldPath | MapRule] | None = Field(
        None, description="New field to the path it comes from, or to a rule."
    )
    keep: Literal["all", "mapped"] = Field(
        "all", description="With `fields`: keep the other fields as they are, or only the mapped ones."
    )
    mask: dict[FieldPath, Mask] = Field(
        default={}, description="Sensitive field to `drop`, `redact` or a keyed hash. Applied last."
    )

    @model_validator(mode="after")
    def _one_mapping(self) -> "Normalize":
        if self.function and self.fields is not None:
            raise ValueError("`function` and `fields` exclude each other")
        return self


class SqlType(StrEnum):
    """Spark SQL types that a field of JSON can be read as."""

    STRING = "string"
    BOOLEAN = "boolean"
    INT = "int"
    BIGINT = "bigint"
    DOUBLE = "double"
    DATE = "date"
    TIMESTAMP = "timestamp"


class SqlTable(Strict):
    """A table or query of a SQL database, read through SQLAlchemy."""

    url: Secret = Field(description="SQLAlchemy URL, by reference since it holds a password.")
    query: str = Field(min_length=1, description="A SELECT that gives the whole lookup.")


class Lookup(Strict):
    """Rows joined to events on one or more fields. Held in memory by enrich, read again after `refresh`."""

    file: Path | None = Field(
        None, description="CSV (with a header line), JSON (array or lines) or Parquet, by suffix."
    )
    sql: SqlTable | None = None
    key: dict[FieldName, str] = Field(
        min_length=1,
        description="Field of the event (declared in `fields`, or an earlier lookup's) to column of the table.",
    )
    fields: dict[FieldName, str] = Field(min_length=1, description="New field to column of the table.")
    types: dict[str, SqlType] = Field(default={}, description="Column to its type; default: string.")
    miss: Literal["null", "default", "dead-letter"] = Field(
        "null", description="What to do when no row matches."
    )
    default: dict[FieldName, Any] = Field(default={}, description="With `miss: default`: new field to value.")
    refresh: Seconds = Field(120, gt=0, description="Age after which it is read again in the background.")
    expire: Seconds = Field(30 * 86400, gt=0, description="Age after which an old copy is no longer served.")

    @model_validator(mode="after")
    def _consistent(self) -> "Lookup":
        if (self.file is None) == (self.sql is None):
            raise ValueError("name exactly one of `file` and `sql`")
        if self.file is not None and self.file.suffix not in {
            ".csv",
            ".json",
            ".ndjson",
            ".jsonl",
            ".parquet",
        }:
            raise ValueError(f"{self.file.name}: the suffix must be .csv, .json, .ndjson, .jsonl or .parquet")
        if bool(self.default) != (self.miss == "default"):
            raise ValueError("`default` goes with `miss: default`, and the other way round")
        if unknown := set(self.default) - set(self.fields):
            raise ValueError(f"`default` names {sorted(unknown)}, which `fields` does not")
        return self


class Derived(Strict):
    """A new field as a Spark SQL expression."""

    sql: str = Field(min_length=1)
    required: bool = Field(False, description="Null: the event is a dead letter.")


class Udf(Strict):
    """A Python function over pandas data, for what SQL cannot say. Micro-batch trigger only."""

    function: PythonPath = Field(
        description="Takes a pandas DataFrame with the columns `args`, returns one with `returns`."
    )
    args: list[FieldName] = Field(min_length=1)
    returns: dict[FieldName, SqlType] = Field(min_length=1)


class Enrich(Strict):
    """Joins, derives, filters on Spark. Lookups, then derived fields, then the UDF, then the filter."""

    fields: dict[FieldName, SqlType] = Field(
        default={},
        description="Fields of the data that expressions and lookups use, and their types; null where it does not fit.",
    )
    required: list[FieldName] = Field(
        default=[], description="Fields that may not be null: else a dead letter."
    )
    lookups: dict[Name, Lookup] = Field(
        default={}, description="In this order; a later one may use an earlier one's fields."
    )
    derive: dict[FieldName, str | Derived] = Field(
        default={},
        description="New field to a Spark SQL expression over fields, lookups' fields and earlier derived ones.",
    )
    udf: Udf | None = None
    filter: str | None = Field(
        None,
        min_length=1,
        description="Spark SQL condition; events for which it is not true go on without data and end as `filtered`.",
    )

    @model_validator(mode="after")
    def _names_once(self) -> "Enrich":
        seen = dict.fromkeys(self.fields, "fields")
        added: list[tuple[str, Iterable[str]]] = [
            *((f"lookups.{name}", lookup.fields) for name, lookup in self.lookups.items()),
            ("derive", self.derive),
            ("udf.returns", self.udf.returns if self.udf else ()),
        ]
        for where, names in added:
            for name in names:
                if name in seen:
                    raise ValueError(
                        f"{where} sets {name!r}, which {seen[name]} has already; choose another name"
                    )
                seen[name] = where
        known = set(self.fields)
        for name, lookup in self.lookups.items():
            if unknown := set(lookup.key) - known:
                raise ValueError(
                    f"lookups.{name}.key uses {sorted(unknown)}; declare them in `fields` with their types"
                )
            known |= set(lookup.fields)
        if unknown := set(self.required) - known:
            raise ValueError(f"required names {sorted(unknown)}; declare them in `fields` or in a lookup")
        known |= set(self.derive)
        if self.udf and (unknown := set(self.udf.args) - known):
            raise ValueError(f"udf.args uses {sorted(unknown)}, which nothing before it sets")
        return self

    def added(self) -> set[str]:
        """Names of the top-level fields that enrich adds; they replace what the sender sent under the same name."""
        names = {name for lookup in self.lookups.values() for name in lookup.fields} | set(self.derive)
        return names | set(self.udf.returns if self.udf else ())


class HeaderSecret(Secret):
    """A header whose value is a secret, after an optional prefix such as `Bearer `."""

    prefix: str = ""


class Batch(Strict):
    """Several events in one request, as a JSON array or a CloudEvents batch."""

    size: int = Field(100, ge=2, le=10_000, description="At most this many events a request.")
    bytes: int = Field(
        1_048_576, ge=1024, description="At most this many bytes a request, unless one event alone is larger."
    )
    wait: Seconds = Field(0.05, le=5, description="How long the first event waits for others.")


class Retry(Strict):
    """When to try again. Recoverable: network errors, time-outs, 408, 425, 429 and 5xx."""

    local_attempts: int = Field(
        3, ge=1, le=10, description="Requests within about a second before the retrier takes over."
    )
    max_attempts: int = Field(20, ge=1, description="Requests really sent; then a dead letter.")
    max_age: Seconds = Field(86400, description="Since the first request; then a dead letter.")
    also: list[Annotated[int, Field(ge=300, le=599)]] = Field(
        default=[], description="Further recoverable statuses."
    )
    never: list[Annotated[int, Field(ge=300, le=599)]] = Field(
        default=[], description="Statuses that are dead letters at once."
    )


class Breaker(Strict):
    """Stops sending to a destination that keeps failing, and probes it."""

    failures: int = Field(
        10, ge=1, description="Failures in a row that open it (also equal 401, 403 or 404 answers)."
    )
    probe: Seconds = Field(
        5, gt=0, description="Time from opening to the next probe; doubles up to a minute."
    )


class Destination(Strict):
    """Where events go. Each event that wants it is one delivery."""

    name: Name
    when: str | None = Field(
        None, min_length=1, description="Spark SQL condition over all fields; default: every event."
    )
    url: HttpUrl
    method: Literal["POST", "PUT", "PATCH"] = "POST"
    headers: dict[str, str | HeaderSecret] = Field(default={}, description="Header to value, or to a secret.")
    format: Literal["cloudevents-binary", "cloudevents-structured", "json"] = Field(
        "cloudevents-binary",
        description="HTTP binding: attributes as `ce-` headers, in a JSON envelope, or the data alone.",
    )
    transform: str | None = Field(
        None, description="JMESPath expression over the data that gives the body's data."
    )
    concurrency: int = Field(16, ge=1, le=1000, description="Requests at a time, for each instance of egest.")
    rate: PerSecond | None = Field(
        None, description="Requests a second over all instances; default: no limit."
    )
    timeout: Seconds = Field(10, gt=0, le=30, description="From connecting to the status line.")
    batch: Batch | None = None
    ordered: Literal["key", "none"] = Field(
        "key", description="`key`: at most one request in flight for each key."
    )
    retry: Retry = Retry()
    breaker: Breaker = Breaker()
    signing: Secret | None = Field(
        None, description="Secret of Standard Webhooks signatures (`whsec_…`, base64)."
    )


class Slo(Strict):
    """What the pipe promises; minutes that miss it count as down."""

    p95: Seconds = Field(
        1, gt=0, description="95 % of a minute's deliveries are within this of being accepted."
    )
    loss: int = Field(0, ge=0, description="Events a minute that may be lost.")


class Pipe(Strict):
    """One declared way from a source through normalize and enrich to its destinations."""

    pipe: Name = Field(description="The pipe's name; the YAML file is named after it.")
    description: str = ""
    source: Source
    normalize: Normalize = Normalize()
    enrich: Enrich = Enrich()
    destinations: list[Destination] = Field(min_length=1)
    slo: Slo = Slo()

    @model_validator(mode="after")
    def _destinations_once(self) -> "Pipe":
        names = [destination.name for destination in self.destinations]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"destinations has {twice} more than once; names must differ")
        return self

    def destination(self, name: str) -> Destination | None:
        """The destination of that name, if the pipe still has it."""
        return next((one for one in self.destinations if one.name == name), None)
