"""The annotation of a source or destination: its kind, which an installed package provides, decides its keys."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import Annotated, Any

from pydantic import Discriminator, GetCoreSchemaHandler, GetJsonSchemaHandler, Tag, TypeAdapter
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from hifi.pipe.strict_model import StrictModel


@dataclass(frozen=True, slots=True)
class DeclaredKind:
    """Annotation of a field that is declared as its kind says.

    Attributes:
        read: validates with the model of the kind; returns an instance as it is.
        models: the models that are part of hifi, by their tags.
        tag: of the model of a declaration.
    """

    read: Callable[[Any], Any]
    models: Callable[[], Mapping[str, type[StrictModel]]]
    tag: Callable[[Any], str]

    def __get_pydantic_core_schema__(self, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        """Validate with the declaration of the kind, and serialize with it."""
        return core_schema.no_info_plain_validator_function(
            self.read, serialization=core_schema.simple_ser_schema("any")
        )

    def __get_pydantic_json_schema__(self, _: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describe the declarations that are part of hifi."""
        tagged_models: list[Any] = [Annotated[model, Tag(tag)] for tag, model in self.models().items()]
        union: Any = Annotated[reduce(or_, tagged_models), Discriminator(self.tag)]
        return handler(TypeAdapter(union).core_schema)
