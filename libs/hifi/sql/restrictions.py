"""What users' SQL may not use: functions that raise, reach outside the event, or give another result at a replay."""

from collections.abc import Iterable
from typing import Any, Final

RAISING: Final = frozenset({"raise_error", "assert_true"})
OUTSIDE: Final = frozenset({
    "reflect", "java_method", "try_reflect", "input_file_name", "input_file_block_start", "input_file_block_length",
    "current_catalog", "current_database", "current_schema", "current_user", "session_user", "user", "version",
    "spark_partition_id", "monotonically_increasing_id", "current_timezone", "getdatabase",
    "from_avro", "to_avro", "from_protobuf", "to_protobuf", "schema_of_avro",
})  # fmt: skip
CLOCK: Final = frozenset({
    "now", "current_timestamp", "current_date", "curdate", "current_time", "localtimestamp",
})  # fmt: skip
RANDOM: Final = frozenset({
    "rand", "random", "randn", "uuid", "shuffle", "randstr", "uniform", "monotonically_increasing_id",
})  # fmt: skip
CLOCK_WITHOUT_ARGUMENTS: Final = frozenset({"unix_timestamp"})
"""Harmless with arguments, the clock without."""
CLOCK_WHY: Final = "reads the clock, so a replayed event would get another result; have a field say the time"
_WHY: Final = (
    (RAISING, "would stop every pipe when it raises; use `required` or `filter`"),
    (OUTSIDE, "reaches outside the event"),
    (CLOCK, CLOCK_WHY),
    (RANDOM, "is random, so a replayed event would get another result; hash a field instead"),
)
_CLOCK_NODES: Final = frozenset(
    {"CurrentDate", "CurrentTimestamp", "CurrentTime", "LocalTimestamp", "Now", "CurDateExpressionBuilder"}
)
_NO_FIELDS: Final = frozenset({"UnresolvedStar", "UnresolvedRegex"})


def refusals(nodes: Iterable[dict[str, Any]]) -> list[str]:
    """Why a parsed expression is refused, one sentence each; empty when it is not.

    Args:
        nodes: as `Catalyst.parse` gives them.
    """
    problems = []
    for node in nodes:
        kind = node["class"].rpartition(".")[2]
        if kind == "UnresolvedFunction":
            problems += _function(str(node["nameParts"]), int(node["num-children"]))
        elif kind in _CLOCK_NODES:
            problems.append(f"{kind} {CLOCK_WHY}")
        elif kind in _NO_FIELDS:
            problems.append("`*` names no field; name each field")
        elif "Subquery" in kind or kind in {"Exists", "ListQuery"}:
            problems.append("subqueries are not possible; declare a lookup instead")
        elif kind == "WindowExpression":
            problems.append("window functions see several events, an expression sees one")
    return problems


def _function(name_parts: str, arguments: int) -> list[str]:
    name = name_parts.strip("[]").rpartition(",")[2].strip().strip('"').lower()
    if name in CLOCK_WITHOUT_ARGUMENTS and arguments == 0:
        return [f"{name}() {CLOCK_WHY}"]
    return [f"{name}() {why}" for names, why in _WHY if name in names][:1]
