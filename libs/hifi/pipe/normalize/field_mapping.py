"""Map the fields of an event as the pipe declares: source path, cast or time format, default. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hifi.pipe.model import MapRule, Normalize
from hifi.pipe.normalize.casting import CASTS, Converter
from hifi.pipe.normalize.lazy_json import MISSING, KeyPath, LazyObject, frozen, get, is_null, key_path, put
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
    """What a value must be, for the message."""
    default: Any
    """Frozen: an event that opens it must not change the default of the next event."""
    required: bool

    def value(self, root: LazyObject) -> Any:
        """The value of the field for one event; MISSING: the field is not set."""
        value = get(root, self.source)
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


def field_mapper(declared: Normalize) -> Callable[[LazyObject], LazyObject]:
    """A function that maps the fields of an event. All values are read before any field is set.

    Raises:
        Misconfigured: a rule names a time zone that does not exist.
    """
    fields = [_field(target, rule) for target, rule in (declared.fields or {}).items()]
    keep_all = declared.keep == "all"

    def apply(root: LazyObject) -> LazyObject:
        values = [(field.target, field.value(root)) for field in fields]
        mapped = root if keep_all else {}
        for target, value in values:
            if value is not MISSING:
                put(mapped, target, value)
        return mapped

    return apply


def _field(target: str, rule: str | MapRule) -> _Field:
    if isinstance(rule, str):
        rule = MapRule(from_=rule)
    convert, reason, expected = None, "", ""
    if rule.cast is not None:
        article = "an" if rule.cast.value[0] in "aeiou" else "a"
        convert, reason, expected = CASTS[rule.cast], "cast", f"{article} {rule.cast.value}"
    elif rule.time is not None:
        convert, reason, expected = time_reader(rule.time), "time", f"a time of the format {rule.time.format}"
    source = key_path(rule.from_ or target)
    return _Field(key_path(target), source, convert, reason, expected, frozen(rule.default), rule.required)
