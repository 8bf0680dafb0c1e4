"""Describe the types and defaults of pydantic models for the reference pages."""

import types
import typing
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, Final

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from hifi.pipe.declared_kind import DeclaredKind

_NAMES: Final = {
    "Seconds": "duration",
    "PerSecond": "rate",
    "str": "text",
    "int": "integer",
    "float": "number",
    "bool": "boolean",
    "Path": "path",
    "HttpUrl": "URL",
    "Any": "any JSON",
    "NoneType": "",
}


def models(root: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Yield a model, the models whose keys it shares and those of its fields, each once, in reading order."""
    visited_models: dict[type[BaseModel], None] = {}

    def visit(model: type[BaseModel]) -> None:
        if model in visited_models:
            return
        visited_models[model] = None
        for base_model in shared_models(model):
            visit(base_model)
        for field in model.model_fields.values():
            for annotation in _nested_annotations(declared_type(field)):
                if isinstance(annotation, type) and issubclass(annotation, BaseModel):
                    visit(annotation)

    visit(root)
    return iter(visited_models)


def shared_models(model: type[BaseModel]) -> list[type[BaseModel]]:
    """Return the base classes of a model that declare fields."""
    return [base for base in model.__mro__[1:] if issubclass(base, BaseModel) and declared_fields(base)]


def declared_fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields that a model declares itself, without those of its base classes."""
    return {
        name: field
        for name, field in model.model_fields.items()
        if name in vars(model).get("__annotations__", {})
    }


def enums(root: type[BaseModel]) -> Iterator[type[Enum]]:
    """Yield the enumerations used by a model and its fields."""
    enumerations: dict[type[Enum], None] = {}
    for model in models(root):
        for field in model.model_fields.values():
            enumerations |= {
                annotation: None
                for annotation in _nested_annotations(declared_type(field))
                if isinstance(annotation, type) and issubclass(annotation, Enum)
            }
    return iter(enumerations)


def _nested_annotations(annotation: Any) -> Iterator[Any]:
    yield annotation
    if typing.get_origin(annotation) is typing.Annotated and (
        installed_models := _installed_models(typing.get_args(annotation))
    ):
        yield from installed_models
        return
    for argument in typing.get_args(annotation):
        yield from _nested_annotations(argument)


def _installed_models(arguments: tuple[Any, ...]) -> Sequence[type[BaseModel]]:
    """The models of an annotation whose value is one of those that installed packages declare."""
    return [
        model
        for argument in arguments
        if isinstance(argument, DeclaredKind)
        for model in argument.models().values()
    ]


def declared_type(field: FieldInfo) -> Any:
    """Return the annotation with the metadata that pydantic separates: it distinguishes a duration from a number."""
    return typing.Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation


def type_name(annotation: Any) -> str:
    """Describe the values that an annotation allows, in Markdown."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _annotated(annotation, arguments)
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(kind for kind in map(type_name, arguments) if kind))
    if origin in (list, tuple):
        return f"list of {type_name(arguments[0])}"
    if origin is dict:
        return f"map to {type_name(arguments[1])}"  # keys are texts
    return _class(annotation)


def _class(annotation: Any) -> str:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return f"[{annotation.__name__}](#{annotation.__name__.lower()})"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return f"[{annotation.__name__}](#enumerations)"
    name = getattr(annotation, "__name__", str(annotation))
    return _NAMES.get(name, name)


def _annotated(annotation: Any, arguments: tuple[Any, ...]) -> str:
    if installed_models := _installed_models(arguments):
        return " or ".join(map(type_name, installed_models))
    functions = {getattr(getattr(metadata, "func", None), "__name__", "") for metadata in arguments[1:]}
    if "seconds" in functions:
        return "duration"
    if "per_second" in functions:
        return "rate"
    return type_name(annotation.__origin__)


def choices(kind: type[Enum]) -> str:
    """List the values of an enumeration."""
    return ", ".join(f"`{member.value}`" for member in kind)


def default_text(field: FieldInfo) -> str:
    """Describe the default of a field, in Markdown."""
    if field.is_required():
        return "required"
    value = field.default
    if value is None or value is PydanticUndefined or value in ("", [], {}, ()):
        return ""
    if isinstance(value, BaseModel):  # its own section has the defaults
        return ""
    if type_name(declared_type(field)) == "duration":
        return f"`{_duration(value)}`"
    if type_name(declared_type(field)) == "rate":
        return f"`{_text(value)}/s`"
    return f"`{_text(value)}`"


def _duration(value_s: float) -> str:
    """Format a duration as in a pipe, with the largest unit that gives a whole number."""
    for unit, length_s in (("d", 86400), ("h", 3600), ("m", 60), ("s", 1)):
        if value_s >= length_s and value_s % length_s == 0:
            return f"{value_s / length_s:.0f}{unit}"
    return f"{value_s * 1000:g}ms"


def _text(value: Any) -> str:
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, list | tuple):
        return ", ".join(_text(element) for element in value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:g}" if abs(value) < 1e6 else f"{value:.0f}"
    return str(getattr(value, "name", value))


def doc_text(kind: type) -> str:
    """Return the docstring of a class on one line."""
    return " ".join((kind.__doc__ or "").split())
