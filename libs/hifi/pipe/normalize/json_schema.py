"""Validate data against the JSON Schema of a pipe. Pure."""

from collections.abc import Callable, Iterator
from typing import Any, Final

import jsonschema_rs

from hifi.pipe.normalize.lazy_json import decode
from hifi.pipe.normalize.left_out import LeavesOut, is_partial
from hifi.runtime.errors import Misconfigured, Rejected
from hifi.runtime.json_pointer import json_pointer

_MASK: Final = "the value"
"""Stands for values in messages."""
_Kind = jsonschema_rs.ValidationErrorKind


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
    """Whether an error may be only that members are missing which the event leaves out.

    An alternative of `anyOf` or `oneOf` could be the valid one if nothing else is wrong with it. What `not`, and `if`
    without a schema for it, come to is unknown, and so is which of several valid alternatives is not.
    """
    if error.instance_path or not isinstance(data, dict):
        return False
    kind = error.kind
    if isinstance(kind, _Kind.Required):
        return leaves_out(data, kind.property)
    if isinstance(kind, _Kind.AnyOf | _Kind.OneOfNotValid):
        return any(
            all(_is_left_out(inner, data, leaves_out) for inner in alternative)
            for alternative in kind.context
        )
    if isinstance(kind, _Kind.Not):
        return any(leaves_out(data, name) for name in _texts(kind.schema))
    is_undecided = isinstance(kind, _Kind.MinProperties | _Kind.OneOfMultipleValid) or (
        isinstance(kind, _Kind.FalseSchema) and error.schema_path[-1:] in (["then"], ["else"])
    )
    return is_undecided and is_partial(data)


def _texts(schema: Any) -> Iterator[str]:
    """The names and texts in a schema, among them those of the members that it judges."""
    if isinstance(schema, str):
        yield schema
    elif isinstance(schema, dict):
        for name, value in schema.items():
            yield name
            yield from _texts(value)
    elif isinstance(schema, list):
        for element in schema:
            yield from _texts(element)
