"""The fields that a pipe maps: from where, cast to what, with which default. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hifi.errors import Rejected
from hifi.pipe.model import MapRule, Normalize
from hifi.pipe.normalize.casting import CASTS, Converter
from hifi.pipe.normalize.lazy_json import MISSING, Path, Tree, closed, get, is_null, path_of, pointer, put
from hifi.pipe.normalize.time_parsing import reader


@dataclass(frozen=True, slots=True)
class _Field:
    target: Path
    source: Path
    convert: Converter | None
    reason: str
    wanted: str
    """What a value should have been, for a person."""
    default: Any
    """Closed: an event that opens it must not open it for the next one."""
    required: bool

    def value(self, tree: Tree) -> Any:
        """What the field becomes; MISSING: nothing."""
        value = get(tree, self.source)
        if value is MISSING or is_null(value):
            if self.default is not None:
                return self.default
            if self.required:
                raise Rejected("required", "a required field is missing or null", pointer(self.source))
            return value
        if self.convert is None:
            return closed(value)
        try:
            return self.convert(value)
        except ValueError:
            raise Rejected(
                self.reason, f"the value cannot be read as {self.wanted}", pointer(self.source)
            ) from None


def mapper(declared: Normalize) -> Callable[[Tree], Tree]:
    """What maps the fields of a tree. All values are read before any is set.

    Raises:
        Misconfigured: a rule names a time zone that does not exist.
    """
    fields = [_field(target, rule) for target, rule in (declared.fields or {}).items()]
    keep_all = declared.keep == "all"

    def apply(tree: Tree) -> Tree:
        values = [(field.target, field.value(tree)) for field in fields]
        mapped = tree if keep_all else {}
        for target, value in values:
            if value is not MISSING:
                put(mapped, target, value)
        return mapped

    return apply


def _field(target: str, rule: str | MapRule) -> _Field:
    if isinstance(rule, str):
        rule = MapRule(from_=rule)
    convert, reason, wanted = None, "", ""
    if rule.cast is not None:
        article = "an" if rule.cast.value[0] in "aeiou" else "a"
        convert, reason, wanted = CASTS[rule.cast], "cast", f"{article} {rule.cast.value}"
    elif rule.time is not None:
        convert, reason, wanted = reader(rule.time), "time", f"a time of the format {rule.time.format}"
    source = path_of(rule.from_ or target)
    return _Field(path_of(target), source, convert, reason, wanted, closed(rule.default), rule.required)
