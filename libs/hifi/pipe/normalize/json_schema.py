"""Validate data against the JSON Schema of a pipe. Pure.

Numbers are judged as they are written. Those that a double may change are read with all
their digits, which takes longer.
"""

import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import cache
from typing import Any, Final

import jsonschema_rs

from hifi.pipe.normalize.lazy_json import decode
from hifi.pipe.normalize.left_out import LeavesOut, is_partial
from hifi.pipe.normalize.schema_cost import SchemaCost
from hifi.runtime import exact_json
from hifi.runtime.errors import Misconfigured, Rejected
from hifi.runtime.json_pointer import json_pointer

_MASK: Final = "the value"
"""Stands for values in messages."""
_LONG_NUMBER: Final = re.compile(rb"[0-9][0-9.]{15}|[0-9][eE][-+]?[0-9]{3}")
"""A number with 16 digits or an exponent of three, which a double may change. Text may match, too."""
_DIGITS: Final = 1_000
"""Digits that are divided at a time."""
_Kind = jsonschema_rs.ValidationErrorKind


def validator(schema: dict[str, Any], leaves_out: LeavesOut | None = None) -> Callable[[bytes], None]:
    """A function that raises Rejected (`schema`) with the pointer of the first invalid value; it quotes no values.

    Args:
        schema: JSON Schema; a remote `$ref` is not resolved. Events for which it takes too long are refused.
        leaves_out: whether an event leaves out a member, which is not required then; None: none does.

    Raises:
        Misconfigured: not a JSON Schema, or with a remote `$ref`, or it takes too long for any event.
    """
    try:
        ordinary_validator = jsonschema_rs.validator_for(schema, mask=_MASK, offline=True)
    except (ValueError, jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as error:
        raise Misconfigured(f"not a usable JSON Schema: {str(error).splitlines()[0]}") from None

    cost = SchemaCost(schema)

    @cache
    def exact_validator() -> jsonschema_rs.Validator:
        keywords: dict[str, Any] = {"multipleOf": _MultipleOf}
        return jsonschema_rs.validator_for(schema, mask=_MASK, offline=True, keywords=keywords)

    def validate(data: bytes) -> None:
        if _LONG_NUMBER.search(data):
            instance, chosen_validator = _exact_json(data), exact_validator()
        else:
            instance, chosen_validator = decode(data), ordinary_validator
        cost.check(data, instance)
        if chosen_validator.is_valid(instance):
            return
        try:
            errors = chosen_validator.iter_errors(instance)
            if leaves_out is not None:
                errors = (error for error in errors if not _is_left_out(error, instance, leaves_out))
            error = next(iter(errors), None)
        except ValueError:  # the error would have the number as int
            raise Rejected("schema", f"{_MASK}, with a number of over 4,300 digits, is not valid") from None
        if error is None:
            return
        pointer = json_pointer(str(key) for key in error.instance_path)
        raise Rejected("schema", str(error.message), pointer)

    return validate


class _MultipleOf:
    """The keyword `multipleOf`, for numbers with any number of digits; that of the library rounds them."""

    def __init__(self, parent_schema: dict[str, Any], value: Any, schema_path: list[str | int]) -> None:  # noqa: ARG002
        """`value` is the divisor."""
        self._divisor = value

    def validate(self, instance: Any) -> None:
        """Raises ValueError if a number is no multiple."""
        if not isinstance(instance, int | float | Decimal) or isinstance(instance, bool):
            return
        digits, exponent = _digits_and_exponent(instance)
        divisor_digits, divisor_exponent = _digits_and_exponent(self._divisor)
        divisor, zeros = int(divisor_digits), exponent - divisor_exponent
        if digits and (zeros < 0 or _remainder(digits, divisor) * pow(10, zeros, divisor) % divisor):
            raise ValueError(f"{_MASK} is not a multiple of {self._divisor}")


def _digits_and_exponent(number: float | Decimal) -> tuple[str, int]:
    """The digits of a number without zeros at their end, empty for 0, and the exponent of ten that they are times."""
    _, digits, exponent = Decimal(repr(number) if isinstance(number, float) else number).as_tuple()
    assert isinstance(exponent, int)  # JSON has no infinity
    text = "".join(map(str, digits))
    significant_digits = text.rstrip("0")
    return significant_digits, exponent + len(text) - len(significant_digits)


def _remainder(digits: str, divisor: int) -> int:
    """The remainder of a whole number, in a time that is linear in its digits."""
    remainder = 0
    for start in range(0, len(digits), _DIGITS):
        digit_group = digits[start : start + _DIGITS]
        remainder = (remainder * 10 ** len(digit_group) + int(digit_group)) % divisor
    return remainder


def _exact_json(data: bytes) -> Any:
    """As `decode`, with every digit."""
    try:
        return exact_json.loads(data)
    except ValueError as error:
        raise Rejected("not-json", str(error)) from None


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
            all(_is_left_out(inner_error, data, leaves_out) for inner_error in alternative)
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
