"""Validate data against the JSON Schema of a pipe. Pure."""

from collections.abc import Callable
from typing import Any, Final

import jsonschema_rs

from hifi.pipe.normalize.lazy_json import decode
from hifi.runtime.errors import Misconfigured, Rejected
from hifi.runtime.json_pointer import json_pointer

_MASK: Final = "the value"
"""Stands for values in messages."""


def validator(schema: dict[str, Any]) -> Callable[[bytes], None]:
    """A function that raises Rejected (`schema`) with the pointer of the first invalid value; it quotes no values.

    Args:
        schema: JSON Schema; a remote `$ref` is not resolved.

    Raises:
        Misconfigured: not a JSON Schema, or with a remote `$ref`.
    """
    try:
        compiled = jsonschema_rs.validator_for(schema, mask=_MASK, offline=True)
    except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        raise Misconfigured(f"not a usable JSON Schema: {str(error).splitlines()[0]}") from None

    def validate(data: bytes) -> None:
        instance = decode(data)
        if compiled.is_valid(instance):
            return
        error = next(iter(compiled.iter_errors(instance)))
        pointer = json_pointer(str(key) for key in error.instance_path)
        raise Rejected("schema", str(error.message), pointer)

    return validate
