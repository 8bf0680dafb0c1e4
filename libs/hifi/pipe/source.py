"""The declaration of a pipe's source: senders over HTTP, what collect reads with an installed kind, or a step."""

from functools import lru_cache
from importlib.metadata import entry_points
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    ConfigDict,
    Field,
    model_validator,
)

from hifi.pipe.declared_kind import DeclaredKind
from hifi.pipe.event_type import EventType
from hifi.pipe.installed_kinds import SOURCES, load_kind
from hifi.pipe.mask import SourceMask, covers
from hifi.pipe.secret import Quota, WriteKey
from hifi.pipe.sources.collected import CollectedSource, Format
from hifi.pipe.sources.kind import SourceKind
from hifi.pipe.sources.step import StepSource
from hifi.pipe.strict_model import StrictModel
from hifi.runtime.errors import Misconfigured
from hifi.runtime.units import FieldPath

_HTTP: Final = "http"
_STEP: Final = "step"


class HttpSource(StrictModel):
    """Events over HTTP."""

    kind: Literal["http"] = Field("http", description="Kind.")

    keys: list[WriteKey] = Field([], min_length=1, description="Write keys, beside issued ones.")
    formats: list[Format] = Field(
        default=[Format.CLOUDEVENTS, Format.JSON], min_length=1, description="Accepted formats."
    )
    type: EventType = Field("hifi.event", description="CloudEvents `type` of plain JSON.")
    id: FieldPath | None = Field(
        None,
        description="Field of plain JSON with the id; default: from `Idempotency-Key`, else new.",
    )
    time: FieldPath | None = Field(
        None,
        description="Field of plain JSON with the time (RFC 3339); default: the accepted time.",
    )
    partition_key: FieldPath | None = Field(
        None, description="Field of plain JSON whose events stay in order; default: the id."
    )
    quota: Quota | None = Field(None, description="Quota of the pipe, whatever the key.")
    mask: SourceMask | None = Field(
        None,
        description="Masks of data that no topic may hold.",
    )

    @model_validator(mode="after")
    def _nothing_masked_becomes_an_attribute(self) -> "HttpSource":
        mask = self.mask
        if mask is None:
            return self
        for name, path in (("id", self.id), ("time", self.time), ("partition_key", self.partition_key)):
            is_masked = path is not None and any(covers(masked_path, path) for masked_path in mask.data)
            if is_masked and not (name == "partition_key" and "partitionkey" in mask.attributes):
                hint = ", or hash the attribute partitionkey, too" if name == "partition_key" else ""
                raise ValueError(
                    f"{name} is the field {path}, which `mask` masks, and would be kept as an attribute: choose another"
                    f" field{hint}"
                )
        return self


class UnreadableSource(CollectedSource):
    """A source whose kind is not installed beside this process, as it is declared. Only collect and checks need it."""

    model_config = ConfigDict(extra="allow")


@lru_cache
def installed_source_kind(name: str) -> SourceKind[Any]:
    """The kind of that name.

    Raises:
        Misconfigured: no package provides it, several do, or it cannot be loaded.
    """
    kind: SourceKind[Any] = load_kind(SOURCES, name, SourceKind)
    return kind


def declarations() -> list[type[StrictModel]]:
    """The declarations of all kinds of sources that are part of hifi, `http` first, `step` last."""
    kind_names = sorted(kind.name for kind in entry_points(group=SOURCES) if kind.value.startswith("hifi"))
    return [HttpSource, *(installed_source_kind(name).declaration for name in kind_names), StepSource]


def _kind_of(value: Any) -> str:
    kind = value.get("kind", _HTTP) if isinstance(value, dict) else getattr(value, "kind", _HTTP)
    return kind if isinstance(kind, str) else _HTTP


def _read(value: Any) -> HttpSource | CollectedSource:
    """A source as its kind declares it."""
    if isinstance(value, HttpSource | CollectedSource):
        return value
    if (name := _kind_of(value)) == _HTTP:
        return HttpSource.model_validate(value)
    if name == _STEP:
        return StepSource.model_validate(value)
    try:
        declaration: type[CollectedSource] = installed_source_kind(name).declaration
    except Misconfigured:
        declaration = UnreadableSource
    return declaration.model_validate(value)


def _kind_of_model(model: type[StrictModel]) -> str:
    (kind,) = model.model_fields["kind"].annotation.__args__  # type: ignore[union-attr]  # Literal["…"]
    return str(kind)


DeclaredSource: TypeAlias = Annotated[
    HttpSource | CollectedSource,
    DeclaredKind(_read, lambda: {_kind_of_model(model): model for model in declarations()}, _kind_of),
]
