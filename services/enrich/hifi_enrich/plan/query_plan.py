"""The plan of a query: broadcasts of every pipe's compiled expressions and of the lookup tables."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from pyspark.sql.types import StructType

from hifi.pipe.pipes_end import NOTHING_KNOWN, PipesEnd
from hifi.spark.catalyst import JavaObject
from hifi_enrich.plan.pandas_udf import UdfCall


@dataclass(frozen=True, slots=True)
class LookupBroadcasts:
    """The lookup tables that are in Spark."""

    tables: JavaObject
    """Broadcast of a HashMap from a table's id to a broadcast of a HashMap from a key to a row."""
    ids: AbstractSet[str]
    """Ids of the tables, see `hifi.spark.lookup_key.table_id`."""


@dataclass(frozen=True, slots=True)
class RowFunction:
    """Projections of records, compiled to one Java function."""

    copies: JavaObject
    """Broadcast of task copies of an array with the function (`hifi.spark.catalyst.Catalyst.row_function`)."""
    returns: StructType
    """The columns that it makes."""


@dataclass(slots=True)
class QueryPlan:
    """All pipes in force, as broadcasts. A pipe is found by its index in them."""

    pipes_offset: int
    """Last offset in the topic `pipes` that is included. The query must not handle events of later revisions."""
    pipe_index: JavaObject
    """Broadcast of a HashMap from a pipe's name to the index of its current revision, and from `NAME;REVISION` to that
    of another one."""
    fixed_destinations: JavaObject
    """Broadcast of a HashMap from a pipe's name to the destinations of all its events, separated by commas. It has only
    the pipes that neither add, look up, filter nor route by a condition, whose expressions are not evaluated."""
    only_fixed: bool
    """Whether every pipe is in `fixed_destinations`."""
    fields: JavaObject
    """Broadcast of task copies of expressions by index, as `lookup_keys`, `udf_args` and `result` are."""
    lookup_keys: list[tuple[JavaObject, int]]
    """For each wave of lookups: the broadcast, and the largest number of lookups of a pipe in the wave."""
    udf_args: JavaObject | None
    result: JavaObject
    tables: JavaObject
    """See `LookupBroadcasts.tables`. Shared by plans."""
    pipes_end: PipesEnd = NOTHING_KNOWN
    """Events that name a revision which it excludes become dead letters; other later revisions stop the query."""
    has_rollouts: bool = False
    """Whether a pipe has another revision in use than its current one."""
    udfs: dict[int, UdfCall] = field(default_factory=dict)
    """By the pipe's index."""
    task_copies: int = 1
    """Copies of each expression: this many tasks can run at the same time without sharing one."""
    functions: list[RowFunction] = field(default_factory=list)
    """Functions that micro-batches call for a record, in order. UDFs are called between the first and the second;
    without UDFs there is only one. Empty: not compiled yet."""

    def broadcasts(self) -> list[JavaObject]:
        """The broadcasts that belong to this plan only, to be destroyed when no query uses it any more."""
        return [
            self.pipe_index,
            self.fixed_destinations,
            self.fields,
            self.result,
            *(keys for keys, _ in self.lookup_keys),
            *([self.udf_args] if self.udf_args else []),
            *(function.copies for function in self.functions),
        ]
