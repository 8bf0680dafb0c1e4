"""Base class of the parts of a pipe."""

from collections.abc import Iterator
from types import UnionType
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidationInfo, field_validator

from hifi.pipe.text_form import TextForm, refuse_texts


class StrictModel(BaseModel):
    """A part of a pipe: immutable, unknown keys are errors, and so are texts that have not their field's form."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False)
    judges_texts: ClassVar[bool] = True

    @field_validator("*", mode="before")
    @classmethod
    def _true_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        """`true` where a number belongs is a slip, not 1."""
        assert info.field_name is not None
        if isinstance(value, bool) and _is_number(cls.model_fields[info.field_name].annotation):
            raise ValueError(f"{str(value).lower()} is not a number")
        return value

    @field_validator("*", mode="after")
    @classmethod
    def _texts_are_allowed(cls, value: Any, info: ValidationInfo) -> Any:
        assert info.field_name is not None
        if reason := refuse_texts(value, text_form(cls, info.field_name)):
            raise ValueError(reason)
        return value


def _is_number(annotation: Any) -> bool:
    """Whether an annotation has numbers, and no truth values."""
    kinds = set(_kinds(annotation))
    return not kinds.isdisjoint((int, float)) and bool not in kinds


def _kinds(annotation: Any) -> Iterator[Any]:
    """The types of an annotation, those of a union one by one."""
    if get_origin(annotation) is Annotated:
        yield from _kinds(get_args(annotation)[0])
    elif get_origin(annotation) in (Union, UnionType):
        for branch in get_args(annotation):
            yield from _kinds(branch)
    else:
        yield annotation


def text_form(model: type[BaseModel], field: str) -> TextForm:
    """The form of the texts of a field, as its annotation says."""
    metadata = model.model_fields[field].metadata
    return next((item for item in metadata if isinstance(item, TextForm)), TextForm.LINE)


def validation_problems(error: ValidationError) -> Iterator[tuple[list[str | int], str]]:
    """Path in the YAML and message of each problem."""
    for details in error.errors(include_url=False):
        yield [key for key in details["loc"] if _in_tree(key)], _sentence(details)


def _in_tree(key: str | int) -> bool:
    """Whether a part of an error's location is a key of the YAML; pydantic adds names of union branches."""
    return isinstance(key, int) or not (
        key[:1].isupper()
        or key.startswith(("function-", "constrained-", "literal[", "lax-or-strict", "dict["))
        or key in {"str", "[key]"}
    )


def _sentence(error: Any) -> str:
    kind, message = error["type"], error["msg"]
    if kind == "extra_forbidden":
        return "unknown key; see docs/pipes.md for the keys of this part"
    if kind == "missing":
        return "is missing"
    return str(message.removeprefix("Value error, "))
