"""Spark SQL for events of a database's changes, which do not carry all columns. Pure: it does not use Spark.

What left-out columns mean is in `hifi.pipe.normalize.left_out`. A rule on a column that a delete leaves out is not
judged, and a field computed from a long value that did not change is left out, too, like the value.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from hifi.pipe.model import Enrich, MapRule, Pipe
from hifi.pipe.normalize.left_out import is_of_changes
from hifi.record.spark_sql import literal
from hifi.spark.json_fields import json_fields

CHANGE: Final = "change"
"""Name of the member that says what happened to a row."""
LEFT_OUT: Final = "`hifi.left_out`"
"""boolean: the event is a delete without some of the declared fields."""
UNCHANGED: Final = "`hifi.unchanged`"
"""string: JSON array of the columns that the event leaves out as unchanged; null: there are none."""


class LeftOutSql:
    """The SQL of a pipe whose source reads changes."""

    def __init__(self, pipe: Pipe) -> None:
        self._columns = _columns(pipe)

    def marks(self, text: str, change: str, fields: Sequence[str]) -> dict[str, str]:
        """The columns `LEFT_OUT` and `UNCHANGED` and what they need, name to SQL.

        Args:
            text: SQL of the data (string).
            change: SQL of the member `change` (string).
            fields: names of the declared fields.
        """
        names = f"array({', '.join(map(literal, fields))})"
        absent = f"size(array_except({names}, json_object_keys({text}))) > 0" if fields else "false"
        return {
            "hifi.change": json_fields(change, ["op", "unchanged"]),
            "hifi.left_out": f"if(`hifi.change`[0] = 'delete', coalesce({absent}, true), false)",
            "hifi.unchanged": "`hifi.change`[1]",
        }

    def is_unchanged(self, names: Iterable[str]) -> str | None:
        """SQL of whether a field is computed from an unchanged column; None: these never are. It may be null.

        Args:
            names: of fields, declared or added.
        """
        columns = sorted(set[str]().union(*(self._columns[name] for name in names)))
        if not columns:
            return None
        return " or ".join(
            f"contains({UNCHANGED}, {literal(chr(34) + column + chr(34))})" for column in columns
        )

    def excused(self, name: str) -> str:
        """SQL of whether a field may be null though it is required."""
        unchanged = self.is_unchanged([name])
        return LEFT_OUT if unchanged is None else f"({LEFT_OUT} or coalesce({unchanged}, false))"

    def excused_miss(self, key: Sequence[str]) -> str:
        """SQL of whether no row may match a lookup: the event leaves out a part of its key."""
        is_null = " or ".join(f"`{name}` is null" for name in key)
        unchanged = self.is_unchanged(key)
        excuse = f"({LEFT_OUT} and ({is_null}))"
        return excuse if unchanged is None else f"({excuse} or coalesce({unchanged}, false))"

    def without_unchanged(self, patch: str, members: Mapping[str, str]) -> str:
        """SQL of the added fields as a JSON object, without those computed from unchanged columns.

        Args:
            patch: SQL of the object with all of them.
            members: added field to SQL of an object with it alone.
        """
        parts = []
        for name, alone in members.items():
            part = f"substring({alone}, 2, length({alone}) - 2)"
            unchanged = self.is_unchanged([name])
            parts.append(part if unchanged is None else f"if({unchanged}, null, {part})")
        return f"if({UNCHANGED} is null, {patch}, concat('{{', concat_ws(',', {', '.join(parts)}), '}}'))"


def left_out_sql(pipe: Pipe) -> LeftOutSql | None:
    """The SQL of a pipe whose events may leave out columns that it reads; None: they do not."""
    return LeftOutSql(pipe) if is_of_changes(pipe) and pipe.enrich.fields else None


def _columns(pipe: Pipe) -> dict[str, set[str]]:
    """Field, declared or added, to the columns that it is computed from."""
    enrich: Enrich = pipe.enrich
    sent: dict[str, set[str]] = {}
    for target, rule in (pipe.normalize.fields or {}).items():
        source = (rule.from_ or target) if isinstance(rule, MapRule) else rule
        sent.setdefault(target.partition(".")[0], set()).add(source.partition(".")[0])
    columns = {name: sent.get(name, {name}) for name in enrich.fields}
    for lookup in enrich.lookups.values():
        key = set[str]().union(*(columns[name] for name in lookup.key))
        columns |= dict.fromkeys(lookup.fields, key)
    for name, derived in enrich.derive.items():
        sql = derived if isinstance(derived, str) else derived.sql
        words = set(re.findall(r"\w+", sql))
        columns[name] = set[str]().union(*(columns[field] for field in columns if field in words))
    if enrich.udf is not None:
        arguments = set[str]().union(*(columns[name] for name in enrich.udf.args))
        columns |= dict.fromkeys(enrich.udf.returns, arguments)
    return columns
