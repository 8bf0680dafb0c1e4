"""The CloudEvents `type` that a pipe declares for the events of its source."""

from typing import Annotated, TypeAlias

from pydantic import AfterValidator, Field

from hifi.record.cloudevents.attributes import RESERVED_TYPE


def _not_reserved(text: str) -> str:
    if text == RESERVED_TYPE:
        raise ValueError(f"{RESERVED_TYPE} is reserved for hifi")
    return text


EventType: TypeAlias = Annotated[str, Field(min_length=1), AfterValidator(_not_reserved)]
