"""Columns that the events of a database's changes do not carry, and so are not judged by rules on them. Pure.

A delete has its key and, by the table's replica identity, the other columns or not; an update leaves out long values
that did not change and names them in `change.unchanged`. Events of other sources may have such members, too, with no
such meaning.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from hifi.pipe.mask import KeyedHash
from hifi.pipe.model import Pipe

LeavesOut = Callable[[Mapping[str, Any], str], bool]
"""Whether an event leaves out a member of its data, by the data and the member's name."""
_CHANGES: Final = "debezium"
"""Kind of sources that read changes."""
_CHANGE: Final = "change"


def leaves_out(pipe: Pipe) -> LeavesOut | None:
    """Whether an event of a pipe leaves out a member; None: its source has no such events."""
    return _change_leaves_out if is_of_changes(pipe) else None


def is_partial(data: Mapping[str, Any]) -> bool:
    """Whether an event of a change may leave out members."""
    change = data.get(_CHANGE)
    return isinstance(change, Mapping) and (change.get("op") == "delete" or bool(change.get("unchanged")))


def is_of_changes(pipe: Pipe) -> bool:
    """Whether the source of a pipe reads the changes of a database."""
    return pipe.source.kind == _CHANGES


def notes_on_changes(pipe: Pipe) -> Iterator[str]:
    """Notes for the author of a pipe of changes on its rules on columns."""
    if not is_of_changes(pipe):
        return
    normalize = pipe.normalize
    rules = [
        *(["schema"] if normalize.json_schema is not None else []),
        *(
            f"fields.{target}"
            for target, rule in (normalize.fields or {}).items()
            if not isinstance(rule, str) and (rule.required or rule.default is not None)
        ),
    ]
    if rules:
        yield (
            f"{pipe.pipe}: normalize: {', '.join(rules)}: deletes, and updates that leave long values as they are, are "
            "not judged for columns that they do not carry; with REPLICA IDENTITY FULL they carry all"
        )
    if rules := list(_rules_of_enrich(pipe)):
        yield (
            f"{pipe.pipe}: {', '.join(rules)}: where deletes leave out columns, nothing is required of these, and a "
            "condition that is null is met, as is one that reads them with a function such as `coalesce`; an update "
            "that leaves long values as they are does not meet a condition that they make null; with REPLICA IDENTITY "
            "FULL changes carry all columns"
        )
    if unhashed_paths := [path for path, mask in normalize.mask.items() if not isinstance(mask, KeyedHash)]:
        yield (
            f"{pipe.pipe}: normalize.mask: {', '.join(unhashed_paths)}: columns of a primary key have to be hashed; "
            "changes of a table whose key has one that is dropped or redacted become dead letters (mask-unavailable)"
        )


def _rules_of_enrich(pipe: Pipe) -> Iterator[str]:
    """The sections with rules on columns, beside `normalize`."""
    enrich = pipe.enrich
    if enrich.required:
        yield "enrich.required"
    yield from (
        f"enrich.lookups.{name}" for name, lookup in enrich.lookups.items() if lookup.miss == "dead-letter"
    )
    for name, derived_field in enrich.derive.items():
        if not isinstance(derived_field, str) and derived_field.required:
            yield f"enrich.derive.{name}"
    if enrich.filter:
        yield "enrich.filter"
    for destination in pipe.destinations:
        if destination.when:
            yield f"destinations.{destination.name}.when"


def _change_leaves_out(data: Mapping[str, Any], name: str) -> bool:
    change = data.get(_CHANGE)
    if name in data or not isinstance(change, Mapping):
        return False
    return change.get("op") == "delete" or name in (change.get("unchanged") or ())
