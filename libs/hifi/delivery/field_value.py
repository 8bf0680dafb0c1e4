"""Fields of an event's data. Pure."""

from typing import Any

from hifi.delivery.kind import OutboundEvent
from hifi.runtime.errors import Rejected


def fields(event: OutboundEvent) -> dict[str, Any]:
    """The data of an event that is to become a row.

    Raises:
        Rejected: it is no JSON object, or the position of the event is unknown.
    """
    data = event.json()
    if not isinstance(data, dict):
        raise Rejected("not-an-object", "the data is not a JSON object, so it has no columns")
    if event.offset < 0:
        raise Rejected("no-position", "the offset of the event in `raw` is unknown")
    return data


def value_at(data: dict[str, Any], path: str) -> Any:
    """The value at a path such as `address.city`; None if it is missing."""
    if "." not in path:
        return data.get(path)
    value: Any = data
    for name in path.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(name)
    return value
