"""The declaration of a view: the newest row of each key of a pipe, which the service view serves."""

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from hifi.kafka.topics import EVENT_RETENTION_MS, Topics
from hifi.pipe.issued_key import MOST_ORIGINS, read_origin
from hifi.pipe.secret import HashedKey
from hifi.pipe.strict_model import StrictModel
from hifi.pipe.text_form import TextForm
from hifi.runtime.errors import Misconfigured
from hifi.runtime.units import FieldName, Name, Seconds

MOST_FIELDS: Final = 200
_LONGEST_KEEP_S: Final = EVENT_RETENTION_MS // 1000
_RESERVED: Final = ("hifi", "sqlite")
"""Prefixes that names of views and fields must not have: those of tables and columns of the file itself."""


def _page_origin(text: str) -> str:
    try:
        return read_origin(text)
    except Misconfigured as error:
        raise ValueError(str(error)) from None


class ViewedTopic(StrEnum):
    """The topic that a view reads."""

    RAW = "raw"
    NORMALIZED = "normalized"
    ENRICHED = "enriched"

    def topic(self, topics: Topics) -> str:
        """The topic's name in a stream."""
        return {
            ViewedTopic.RAW: topics.raw,
            ViewedTopic.NORMALIZED: topics.normalized,
            ViewedTopic.ENRICHED: topics.enriched,
        }[self]


class ViewType(StrEnum):
    """Type of a field of a view. A value that does not fit is null."""

    TEXT = "text"
    """At most 64 KiB of UTF-8; whole numbers become their digits."""
    INT = "int"
    """A whole number of 64 bits."""
    DOUBLE = "double"
    BOOL = "bool"


class ViewSource(StrictModel):
    """Source of a view."""

    pipe: Name = Field(description="Pipe.")
    at: ViewedTopic = Field(
        ViewedTopic.ENRICHED,
        description="Topic: `normalized` and `enriched` are masked; `raw` is only by `source.mask`, and needs "
        "`HIFI_PIPES_RAW_VIEWS`.",
    )


class ViewAccess(StrictModel):
    """Who may read a view, and how."""

    keys: list[HashedKey] = Field(min_length=1, description="Read keys.")
    sql: bool = Field(default=False, description="Accept SQL.")
    origins: list[Annotated[str, AfterValidator(_page_origin)]] = Field(
        [],
        max_length=MOST_ORIGINS,
        description="Sites whose pages may read it in a browser, such as `https://shop.example`.",
    )


class View(StrictModel):
    """A view, one file beside the pipes."""

    view: Name = Field(description="Name of the view; `_` replaces `-` in SQL.")
    description: Annotated[str, TextForm.LINES] = Field("", description="Note for readers.")
    from_: ViewSource = Field(alias="from", description="What it reads.")
    key: list[FieldName] = Field(
        min_length=1,
        max_length=8,
        description="Top-level fields that name a row; `text` unless `fields` says `int`.",
    )
    fields: dict[FieldName, ViewType] = Field(
        min_length=1, max_length=MOST_FIELDS, description="Top-level field, and its type."
    )
    order: Literal["offset", "time"] = Field(
        "offset",
        description="Which event of a key is the newest: the last in `raw`, or that with the latest time.",
    )
    keep: Seconds = Field(
        86400,
        ge=1,
        le=_LONGEST_KEEP_S,
        description="Age, from acceptance, at which a row expires; at most 7 days.",
    )
    serve: ViewAccess = Field(description="Who may read it.")

    @model_validator(mode="after")
    def _consistent(self) -> "View":
        if self.view.startswith(_RESERVED):
            raise ValueError(f"view must not begin with {' or '.join(_RESERVED)}; choose another name")
        columns = [*self.key, *(name for name in self.fields if name not in self.key)]
        lower_names = [name.lower() for name in columns]
        if repeated_names := sorted({name for name in columns if lower_names.count(name.lower()) > 1}):
            raise ValueError(
                f"key and fields have {repeated_names}, which SQL does not tell apart; leave out all but one"
            )
        if reserved_names := sorted(name for name in columns if name.lower().startswith(_RESERVED)):
            raise ValueError(
                f"fields {reserved_names} begin with {' or '.join(_RESERVED)}, which are reserved"
            )
        for name in self.key:
            if self.type_of(name) not in (ViewType.TEXT, ViewType.INT):
                raise ValueError(f"the key field {name} must be text or int")
        return self

    @property
    def table(self) -> str:
        """Its name in SQL."""
        return self.view.replace("-", "_")

    @property
    def columns(self) -> dict[str, ViewType]:
        """Column to its type: those of the key, then the other fields, in declared order."""
        column_names = dict.fromkeys([*self.key, *self.fields])
        return {name: self.type_of(name) for name in column_names}

    def type_of(self, name: str) -> ViewType:
        """The type of a field; a field of the key that is not declared is text."""
        return self.fields.get(name, ViewType.TEXT)
