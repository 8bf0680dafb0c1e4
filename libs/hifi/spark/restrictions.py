"""SQL that users may not write: it raises errors, reads more than the event, or gives another result at a replay."""

from collections.abc import Iterable
from typing import Any, Final

_RAISING: Final = frozenset({"raise_error", "assert_true"})
_OUTSIDE: Final = frozenset({
    "reflect", "java_method", "try_reflect", "input_file_name", "input_file_block_start", "input_file_block_length",
    "current_catalog", "current_database", "current_schema", "current_user", "session_user", "user", "version",
    "spark_partition_id", "monotonically_increasing_id", "current_timezone", "getdatabase",
    "from_avro", "to_avro", "from_protobuf", "to_protobuf", "schema_of_avro",
})  # fmt: skip
_CLOCK: Final = frozenset({
    "now", "current_timestamp", "current_date", "curdate", "current_time", "localtimestamp",
})  # fmt: skip
_RANDOM: Final = frozenset({
    "rand", "random", "randn", "uuid", "shuffle", "randstr", "uniform", "monotonically_increasing_id",
})  # fmt: skip
_CLOCK_WITHOUT_ARGUMENTS: Final = frozenset({"unix_timestamp"})
"""Read the clock only when called without arguments."""
READS_CLOCK: Final = (
    "reads the clock, so a replayed event would get another result; use a field that holds the time"
)
_REASONS: Final = (
    (_RAISING, "would stop every pipe when it raises; use `required` or `filter`"),
    (_OUTSIDE, "reads more than the event"),
    (_CLOCK, READS_CLOCK),
    (_RANDOM, "is random, so a replayed event would get another result; hash a field instead"),
)
_CLOCK_NODES: Final = frozenset(
    {"CurrentDate", "CurrentTimestamp", "CurrentTime", "LocalTimestamp", "Now", "CurDateExpressionBuilder"}
)
_WILDCARDS: Final = frozenset({"UnresolvedStar", "UnresolvedRegex"})


def violations(nodes: Iterable[dict[str, Any]]) -> list[str]:
    """What is not allowed in a parsed expression, one sentence each; empty when all is allowed.

    Args:
        nodes: the expression as returned by `Catalyst.parse`.
    """
    problems = []
    for node in nodes:
        kind = node["class"].rpartition(".")[2]
        if kind == "UnresolvedFunction":
            problems += _function(str(node["nameParts"]), int(node["num-children"]))
        elif kind in _CLOCK_NODES:
            problems.append(f"{kind} {READS_CLOCK}")
        elif kind in _WILDCARDS:
            problems.append("`*` is not allowed; name each field")
        elif "Subquery" in kind or kind in {"Exists", "ListQuery"}:
            problems.append("subqueries are not supported; declare a lookup instead")
        elif kind == "WindowExpression":
            problems.append("window functions need several events; an expression gets one")
    return problems


def _function(name_parts: str, arguments: int) -> list[str]:
    name = name_parts.strip("[]").rpartition(",")[2].strip().strip('"').lower()
    if name in _CLOCK_WITHOUT_ARGUMENTS and arguments == 0:
        return [f"{name}() {READS_CLOCK}"]
    return [f"{name}() {reason}" for names, reason in _REASONS if name in names][:1]
