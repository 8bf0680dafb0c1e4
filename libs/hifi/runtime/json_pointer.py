"""JSON pointers (RFC 6901). Pure."""

from collections.abc import Iterable


def json_pointer(keys: Iterable[str]) -> str:
    """The pointer to a value, such as `/address/city`; empty for the whole document."""
    return "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in keys)
