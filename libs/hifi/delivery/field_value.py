"""Fields of an event's data. Pure."""

from typing import Any, Final

from hifi.delivery.kind import OutboundEvent
from hifi.runtime import exact_json
from hifi.runtime.errors import Rejected

ABSENT: Final = object()
"""Stands for a value that is not there, where that is not the same as null."""


def exact_fields(event: OutboundEvent) -> dict[str, Any]:
    """The data of an event that is to become a row. Numbers with a fraction or an exponent are Decimal.

    Raises:
        Rejected: it is no JSON object, or the position of the event is unknown.
    """
    try:
        data = exact_json.loads(event.data)
    except ValueError:
        event.json()  # says where
        raise Rejected("not-json", "the data is not JSON, or is nested too deeply") from None
    if not isinstance(data, dict):
        raise Rejected("not-an-object", "the data is not a JSON object, so it has no columns")
    if event.offset < 0:
        raise Rejected("no-position", "the offset of the event in `raw` is unknown")
    return data


def value_at(data: dict[str, Any], path: str, default: Any = None) -> Any:
    """The value at a path such as `address.city`; `default` if it is not there."""
    if "." not in path:
        return data.get(path, default)
    value: Any = data
    for name in path.split("."):
        if not isinstance(value, dict):
            return default
        value = value.get(name, default)
    return value
