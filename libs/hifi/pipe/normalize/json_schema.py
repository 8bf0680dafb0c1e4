"""The JSON Schema that data must satisfy. Pure."""

from collections.abc import Callable
from typing import Any, Final

import jsonschema_rs

from hifi.errors import Misconfigured, Rejected
from hifi.pipe.normalize.lazy_json import parse, pointer

_MASK: Final = "the value"


def checker(schema: dict[str, Any]) -> Callable[[bytes], None]:
    """What raises Rejected (`schema`) with the pointer of the first failing place; it quotes no values.

    Raises:
        Misconfigured: it is no JSON Schema, or refers to one elsewhere.
    """
    try:
        validator = jsonschema_rs.validator_for(schema, mask=_MASK, offline=True)
    except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        raise Misconfigured(f"not a usable JSON Schema: {str(error).splitlines()[0]}") from None

    def check(data: bytes) -> None:
        instance = parse(data)
        if validator.is_valid(instance):
            return
        error = next(iter(validator.iter_errors(instance)))
        place = pointer(tuple(str(part) for part in error.instance_path))
        raise Rejected("schema", str(error.message), place)

    return check
