"""Writes a query of one row in steps. Pure: it does not use Spark.

Each step selects from the one before, so Spark analyses one after the other, and the user's SQL is never rewritten:
Spark's scoping resolves the names of earlier columns.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

Steps: TypeAlias = tuple[tuple[str, ...], ...]
"""For each step the expressions that it selects; the last step selects the result alone."""
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class RowQuery:
    """The steps so far, and the column that says whether the event has failed in one of them."""

    steps: Steps = ()
    failure: str | None = None
    """SQL of the reason (string) why the event fails, null when it does not; None: no step can fail."""

    def extend(self, columns: Mapping[str, str]) -> "RowQuery":
        """Add columns, name to SQL, each of which may use those before it. A line comment may end a text."""
        query, step = self, dict[str, str]()
        for name, sql in columns.items():
            words = _words(sql)
            if any(words >= _words(earlier_name) for earlier_name in step):
                query, step = _with_step(query, step), {}
            step[name] = sql
        return _with_step(query, step)

    def extend_unless_failed(self, columns: Mapping[str, str]) -> "RowQuery":
        """As `extend`, but the columns are null, and not evaluated, where the event has failed."""
        if self.failure is None:
            return self.extend(columns)
        return self.extend(
            {name: f"if({self.failure} is null, ({sql}\n), null)" for name, sql in columns.items()}
        )

    def fail(self, checks: Iterable[tuple[str, str]]) -> "RowQuery":
        """Let the event fail at the first of these conditions that is true, if it has not failed before.

        Args:
            checks: SQL of the condition, and SQL of the reason (string).
        """
        cases = [f"when {condition} then {reason}" for condition, reason in checks]
        if not cases:
            return self
        if self.failure is not None:
            cases.insert(0, f"when {self.failure} is not null then {self.failure}")
        name = f"hifi.failure{len(self.steps)}"
        return replace(_with_step(self, {name: f"case {' '.join(cases)} end"}), failure=f"`{name}`")

    def select(self, result: str, failed: str = "null") -> Steps:
        """All steps.

        Args:
            result: SQL of the result.
            failed: SQL of it where the event has failed.
        """
        result_sql = result if self.failure is None else f"if({self.failure} is null, {result}, {failed})"
        return (*self.steps, (f"{result_sql} AS `hifi.result`",))


def _with_step(query: RowQuery, columns: Mapping[str, str]) -> RowQuery:
    if not columns:
        return query
    expressions = (f"({sql}\n) AS `{name}`" for name, sql in columns.items())
    return replace(query, steps=(*query.steps, ("*", *expressions)))


def _words(sql: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(sql)}
