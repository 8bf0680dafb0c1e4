"""Spark SQL for events of a database's changes, which do not carry all columns. Pure: it does not use Spark.

What left-out columns mean is in `hifi.pipe.normalize.left_out`. A rule on a column that a delete leaves out is not
judged, a condition that such a column decides is met, and a field computed from a long value that did not change is
left out, too, like the value.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from hifi.pipe.model import Enrich, MapRule, Pipe
from hifi.pipe.normalize.left_out import is_of_changes
from hifi.record.spark_sql import literal
from hifi.spark.json_fields import json_fields
from hifi.spark.null_logic import alternatives, passes_null_on

CHANGE: Final = "change"
"""Name of the member that says what happened to a row."""
LEFT_OUT: Final = "`hifi.left_out`"
"""boolean: the event is a delete without some of the declared fields."""
_ABSENT: Final = "`hifi.absent`"
"""array<string>: the declared fields that a delete leaves out; null: the event is none, or no JSON object."""
UNCHANGED: Final = "`hifi.unchanged`"
"""string: JSON array of the columns that the event leaves out as unchanged; null: there are none."""


class LeftOutSql:
    """The SQL of a pipe whose source reads changes."""

    def __init__(self, pipe: Pipe) -> None:
        self._columns = _columns(pipe)
        self._fields, self._opaque_fields = _fields(pipe)

    def change_columns(self, text: str, change: str, fields: Sequence[str]) -> dict[str, str]:
        """The columns `LEFT_OUT`, `UNCHANGED` and what they and conditions need, name to SQL.

        Args:
            text: SQL of the data (string).
            change: SQL of the member `change` (string).
            fields: names of the declared fields.
        """
        absent_sql = f"array_except({_array(fields)}, json_object_keys({text}))"
        return {
            "hifi.change": json_fields(change, ["op", "unchanged"]),
            "hifi.absent": f"if(`hifi.change`[0] = 'delete', {absent_sql}, null)",
            "hifi.left_out": f"if(`hifi.change`[0] = 'delete', coalesce(size({_ABSENT}) > 0, true), false)",
            "hifi.unchanged": "`hifi.change`[1]",
        }

    def condition(self, sql: str) -> str:
        """SQL of a condition, boolean: null where what a delete leaves out decides it.

        That is null by itself, unless the condition turns null into a value: then a part of it that reads such a field
        is null.
        """
        whole_condition = f"cast(({sql}\n) as boolean)"
        disjuncts = [[self._conjunct(conjunct) for conjunct in conjuncts] for conjuncts in alternatives(sql)]
        if all(unknown_sql is None for conjuncts in disjuncts for _, unknown_sql in conjuncts):
            return whole_condition
        partial_condition = " or ".join(
            "("
            + " and ".join(
                text if unknown_sql is None else f"if({unknown_sql}, null, {text})"
                for text, unknown_sql in conjuncts
            )
            + ")"
            for conjuncts in disjuncts
        )
        return f"if({LEFT_OUT}, {partial_condition}, {whole_condition})"

    def _conjunct(self, sql: str) -> tuple[str, str | None]:
        """SQL of a part of a condition, and of whether it is unknown; None: it is null then by itself."""
        read_names = [name for name in self._fields if name in _words(sql)]
        fields = sorted(set[str]().union(*(self._fields[name] for name in read_names)))
        is_null_then = passes_null_on(sql) and self._opaque_fields.isdisjoint(read_names)
        unknown_sql = f"coalesce(arrays_overlap({_ABSENT}, {_array(fields)}), true)"
        return f"cast(({sql}\n) as boolean)", None if is_null_then or not fields else unknown_sql

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
        unchanged_sql = self.is_unchanged([name])
        return LEFT_OUT if unchanged_sql is None else f"({LEFT_OUT} or coalesce({unchanged_sql}, false))"

    def excused_miss(self, key: Sequence[str]) -> str:
        """SQL of whether no row may match a lookup: the event leaves out a part of its key."""
        is_null = " or ".join(f"`{name}` is null" for name in key)
        unchanged_sql = self.is_unchanged(key)
        excuse_sql = f"({LEFT_OUT} and ({is_null}))"
        return excuse_sql if unchanged_sql is None else f"({excuse_sql} or coalesce({unchanged_sql}, false))"

    def without_unchanged(self, patch: str, members: Mapping[str, str]) -> str:
        """SQL of the added fields as a JSON object, without those computed from unchanged columns.

        Args:
            patch: SQL of the object with all of them.
            members: added field to SQL of an object with it alone.
        """
        members_sql = []
        for name, object_sql in members.items():
            member_sql = f"substring({object_sql}, 2, length({object_sql}) - 2)"
            unchanged_sql = self.is_unchanged([name])
            members_sql.append(
                member_sql if unchanged_sql is None else f"if({unchanged_sql}, null, {member_sql})"
            )
        return (
            f"if({UNCHANGED} is null, {patch}, concat('{{', concat_ws(',', {', '.join(members_sql)}), '}}'))"
        )


def left_out_sql(pipe: Pipe) -> LeftOutSql | None:
    """The SQL of a pipe whose events may leave out columns that it reads; None: they do not."""
    return LeftOutSql(pipe) if is_of_changes(pipe) and pipe.enrich.fields else None


def _array(texts: Iterable[str]) -> str:
    return f"array({', '.join(map(literal, texts))})"


def _words(sql: str) -> set[str]:
    return set(re.findall(r"\w+", sql))


def _columns(pipe: Pipe) -> dict[str, set[str]]:
    """Field, declared or added, to the columns that it is computed from."""
    enrich: Enrich = pipe.enrich
    sent_columns: dict[str, set[str]] = {}
    for target, rule in (pipe.normalize.fields or {}).items():
        source = (rule.from_ or target) if isinstance(rule, MapRule) else rule
        sent_columns.setdefault(target.partition(".")[0], set()).add(source.partition(".")[0])
    return _sources_of(enrich, {name: sent_columns.get(name, {name}) for name in enrich.fields})


def _fields(pipe: Pipe) -> tuple[dict[str, set[str]], set[str]]:
    """Field, declared or added, to the declared fields that it is made of; those that may be no null without these."""
    enrich = pipe.enrich
    fields = _sources_of(enrich, {name: {name} for name in enrich.fields})
    opaque_fields: set[str] = set(enrich.udf.returns) if enrich.udf is not None else set()
    for name, derived_field in enrich.derive.items():
        sql = derived_field if isinstance(derived_field, str) else derived_field.sql
        if not passes_null_on(sql) or not opaque_fields.isdisjoint(_words(sql)):
            opaque_fields.add(name)
    return fields, opaque_fields


def _sources_of(enrich: Enrich, declared_sources: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Field, declared or added, to the sources of all fields that it is computed from, given those of declared ones."""
    sources = dict(declared_sources)
    for lookup in enrich.lookups.values():
        key = set[str]().union(*(sources[name] for name in lookup.key))
        sources |= dict.fromkeys(lookup.fields, key)
    for name, derived_field in enrich.derive.items():
        words = _words(derived_field if isinstance(derived_field, str) else derived_field.sql)
        sources[name] = set[str]().union(*(sources[field] for field in sources if field in words))
    if enrich.udf is not None:
        arguments = set[str]().union(*(sources[name] for name in enrich.udf.args))
        sources |= dict.fromkeys(enrich.udf.returns, arguments)
    return sources
