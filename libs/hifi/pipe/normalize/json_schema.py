"""Validate data against the JSON Schema of a pipe. Pure."""

from collections.abc import Callable
from typing import Any, Final

import jsonschema_rs

from hifi.pipe.normalize.lazy_json import decode
from hifi.pipe.normalize.left_out import LeavesOut
from hifi.runtime.errors import Misconfigured, Rejected
from hifi.runtime.json_pointer import json_pointer

_MASK: Final = "the value"
"""Stands for values in messages."""


def validator(schema: dict[str, Any], leaves_out: LeavesOut | None = None) -> Callable[[bytes], None]:
    """A function that raises Rejected (`schema`) with the pointer of the first invalid value; it quotes no values.

    Args:
        schema: JSON Schema; a remote `$ref` is not resolved.
        leaves_out: whether an event leaves out a member, which is not required then; None: none does.

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
        invalid = compiled.iter_errors(instance)
        if leaves_out is not None:
            invalid = (error for error in invalid if not _is_left_out(error, instance, leaves_out))
        error = next(iter(invalid), None)
        if error is None:
            return
        pointer = json_pointer(str(key) for key in error.instance_path)
        raise Rejected("schema", str(error.message), pointer)

    return validate


def _is_left_out(error: jsonschema_rs.ValidationError, data: Any, leaves_out: LeavesOut) -> bool:
    """Whether an error is only that a member is missing which the event leaves out."""
    if error.instance_path or not isinstance(error.kind, jsonschema_rs.ValidationErrorKind.Required):
        return False
    return leaves_out(data, error.kind.property)
