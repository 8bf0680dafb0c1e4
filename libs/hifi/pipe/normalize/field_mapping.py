"""Map the fields of an event as the pipe declares: source path, cast or time format, default. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hifi.pipe.model import MapRule, Normalize
from hifi.pipe.normalize.casting import CASTS, Converter
from hifi.pipe.normalize.lazy_json import (
    MISSING,
    KeyPath,
    LazyObject,
    frozen,
    get,
    is_null,
    key_path,
    put,
    to_python,
)
from hifi.pipe.normalize.left_out import LeavesOut
from hifi.pipe.normalize.time_parsing import time_reader
from hifi.runtime.errors import Rejected
from hifi.runtime.json_pointer import json_pointer


@dataclass(frozen=True, slots=True)
class _Field:
    target: KeyPath
    source: KeyPath
    convert: Converter | None
    reason: str
    """Of the dead letter if a value cannot be converted."""
    expected: str
    """Description of a value that can be converted, for the message."""
    default: Any
    """Frozen: an event that opens it must not change the default of the next event."""
    required: bool
    leaves_out: LeavesOut | None
    """Whether an event leaves out a member."""

    def value(self, root: LazyObject) -> Any:
        """The value of the field for one event; MISSING: the field is not set."""
        value = get(root, self.source)
        if (
            value is MISSING
            and self.leaves_out is not None
            and self.leaves_out(_with_change(root), self.source[0])
        ):
            return MISSING
        if value is MISSING or is_null(value):
            if self.default is not None:
                return self.default
            if self.required:
                raise Rejected("required", "a required field is missing or null", json_pointer(self.source))
            return value
        if self.convert is None:
            return frozen(value)
        try:
            return self.convert(value)
        except ValueError:
            raise Rejected(
                self.reason, f"the value cannot be read as {self.expected}", json_pointer(self.source)
            ) from None


def field_mapper(
    normalize: Normalize, leaves_out: LeavesOut | None = None
) -> Callable[[LazyObject], LazyObject]:
    """A function that maps the fields of an event. All values are read before any field is set.

    Args:
        normalize: rules of the pipe.
        leaves_out: whether an event leaves out a member, which is neither required nor has its default then.

    Raises:
        Misconfigured: a rule names a time zone that does not exist, or a format of times that is none.
    """
    fields = [_field(target, rule, leaves_out) for target, rule in (normalize.fields or {}).items()]
    keep_all = normalize.keep == "all"

    def apply(root: LazyObject) -> LazyObject:
        values = [(field.target, field.value(root)) for field in fields]
        result = root if keep_all else {}
        for target, value in values:
            if value is not MISSING:
                put(result, target, value)
        return result

    return apply


def _field(target: str, rule: str | MapRule, leaves_out: LeavesOut | None) -> _Field:
    if isinstance(rule, str):
        rule = MapRule(from_=rule)
    convert, reason, expected = None, "", ""
    if rule.cast is not None:
        article = "an" if rule.cast.value[0] in "aeiou" else "a"
        convert, reason, expected = CASTS[rule.cast], "cast", f"{article} {rule.cast.value}"
    elif rule.time is not None:
        convert, reason, expected = time_reader(rule.time), "time", f"a time of the format {rule.time.format}"
    source = key_path(rule.from_ or target)
    return _Field(
        key_path(target), source, convert, reason, expected, frozen(rule.default), rule.required, leaves_out
    )


def _with_change(root: LazyObject) -> dict[str, Any]:
    """The members of an event, with `change` decoded."""
    return {**root, "change": to_python(root["change"])} if "change" in root else root
