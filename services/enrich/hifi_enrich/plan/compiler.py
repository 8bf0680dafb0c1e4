"""Compiles pipes to a query plan, and keeps the compiled pipes for the next plan."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import Final

from hifi.pipe.model import Pipe
from hifi.pipe.pipes_end import NOTHING_KNOWN, PipesEnd
from hifi.pipe.revision import PIPE_UNREADABLE, PipeRevision, read_key
from hifi.runtime import log
from hifi.spark.catalyst import Catalyst, JavaObject, SqlProblem
from hifi.spark.generator import (
    PipeSql,
    dead_letter_result,
    generate_sql,
    lookup_waves,
    user_expressions,
)
from hifi.spark.lookup_key import table_ids
from hifi.spark.restrictions import violations
from hifi.spark.row_query import Steps
from hifi.spark.spark_session import raise_if_stopped, root_cause
from hifi_enrich.plan.pandas_udf import UdfCall
from hifi_enrich.plan.query_plan import LookupBroadcasts, QueryPlan
from hifi_enrich.plan.udf_limits import DEFAULT_LIMITS, UdfLimits

_NO_OFFSET: Final = -1
"""Offset of the stand-in for a broken pipe. No pipe has it, so the pipe is compiled again for the next plan."""

logger = log.get(__name__)


@dataclass(frozen=True, slots=True)
class CompiledPipe:
    """One revision of a pipe as expressions that are bound to the columns of a row."""

    key: str
    offset: int
    fields: JavaObject | None
    lookup_keys: tuple[JavaObject, ...]
    lookups_per_wave: tuple[int, ...]
    udf_args: JavaObject | None
    """`BOUNDED`, as `result` is: the expressions that the user wrote are in them."""
    result: JavaObject
    udf: UdfCall | None
    source: PipeRevision | None
    """The revision that was compiled; None for the stand-in of a broken pipe."""
    sql: PipeSql


class PipeCompiler:
    """Compiles pipes. Equal expressions are compiled once and shared by the pipes that have them.

    Args:
        catalyst: of the session.
        udf_limits: of users' functions.
    """

    def __init__(self, catalyst: Catalyst, udf_limits: UdfLimits = DEFAULT_LIMITS) -> None:
        self._catalyst = catalyst
        self._udf_limits = udf_limits
        self._compiled: dict[str, CompiledPipe] = {}
        self._expressions: dict[Steps, JavaObject] = {}
        """Compiled expression by its query."""
        self._allowed_expressions: set[str] = set()
        """Users' expressions in which nothing is forbidden."""

    def plan(
        self,
        pipes: Sequence[PipeRevision],
        pipes_offset: int,
        lookups: LookupBroadcasts,
        task_copies: int,
        broken: Mapping[str, str],
        quarantined: Mapping[str, str] = MappingProxyType({}),
        unreadable: Mapping[str, str] = MappingProxyType({}),
        pipes_end: PipesEnd = NOTHING_KNOWN,
    ) -> QueryPlan:
        """Make the plan of all pipes.

        A pipe that Spark rejects continues in the revision that was compiled last. Without such a revision, its events
        become dead letters `pipe-broken` with the reason.

        Args:
            pipes: every revision that is used.
            pipes_offset: last offset in the topic `pipes` that the plan includes.
            lookups: the tables that pipes can look rows up in.
            task_copies: copies of each expression, at least the number of partitions of the stream.
            broken: key of a revision to the reason why it cannot run, such as a lookup that cannot be read.
            quarantined: key of a revision to the reason why it must not run: its events become dead letters.
            unreadable: key of a revision, which is none of `pipes`, to the reason why it cannot be read: its events
                become dead letters `pipe-unreadable`.
            pipes_end: events of revisions that it excludes become dead letters `pipe-unreadable`, too.
        """
        compiled_pipes = self._compile(pipes, lookups.ids, broken, quarantined)
        compiled_pipes += [
            self._stand_in(key, f"{PIPE_UNREADABLE}: the pipe is held: {reason}")
            for key, reason in unreadable.items()
        ]
        pipe_index, fixed_destinations = (self._catalyst.jvm.java.util.HashMap() for _ in range(2))
        for index, pipe in enumerate(compiled_pipes):
            pipe_index.put(pipe.key, index)
            if pipe.sql.fixed_destinations is not None:
                fixed_destinations.put(pipe.key, pipe.sql.fixed_destinations)
        wave_count = max((len(pipe.lookup_keys) for pipe in compiled_pipes), default=0)
        lookup_keys = [
            (
                self._broadcast(
                    [
                        pipe.lookup_keys[wave] if wave < len(pipe.lookup_keys) else None
                        for pipe in compiled_pipes
                    ],
                    task_copies,
                ),
                max(
                    pipe.lookups_per_wave[wave]
                    for pipe in compiled_pipes
                    if wave < len(pipe.lookups_per_wave)
                ),
            )
            for wave in range(wave_count)
        ]
        udfs = {index: pipe.udf for index, pipe in enumerate(compiled_pipes) if pipe.udf is not None}
        return QueryPlan(
            pipes_offset=pipes_offset,
            pipes_end=pipes_end,
            has_rollouts=any(read_key(pipe.key.encode())[1] is not None for pipe in compiled_pipes),
            pipe_index=self._catalyst.broadcast(pipe_index),
            fixed_destinations=self._catalyst.broadcast(fixed_destinations),
            only_fixed=all(pipe.sql.fixed_destinations is not None for pipe in compiled_pipes),
            fields=self._broadcast([pipe.fields for pipe in compiled_pipes], task_copies),
            lookup_keys=lookup_keys,
            udf_args=self._broadcast([pipe.udf_args for pipe in compiled_pipes], task_copies)
            if udfs
            else None,
            result=self._broadcast([pipe.result for pipe in compiled_pipes], task_copies),
            tables=lookups.tables,
            udfs=udfs,
            task_copies=task_copies,
        )

    def in_force(self) -> list[PipeRevision]:
        """The revisions that are in the last plan."""
        return [pipe.source for pipe in self._compiled.values() if pipe.source is not None]

    def _broadcast(self, expressions: Sequence[JavaObject | None], task_copies: int) -> JavaObject:
        array = self._catalyst.array(expressions)
        return self._catalyst.broadcast(self._catalyst.task_copies(array, task_copies))

    def _compile(
        self,
        pipes: Sequence[PipeRevision],
        tables: AbstractSet[str],
        broken: Mapping[str, str],
        quarantined: Mapping[str, str],
    ) -> list[CompiledPipe]:
        for revision in pipes:
            if revision.key in quarantined:
                self._use_stand_in(revision, quarantined[revision.key])
            elif not self._is_usable(revision.key, tables, revision.offset):
                self._compile_pipe(revision, tables, broken.get(revision.key))
        used_keys = {revision.key for revision in pipes}
        self._compiled = {key: pipe for key, pipe in self._compiled.items() if key in used_keys}
        self._drop_unused()
        return [self._compiled[revision.key] for revision in pipes]

    def _stand_in(self, key: str, failure: str) -> CompiledPipe:
        """A compiled pipe that makes dead letters of the events of a revision; `failure` is `reason: detail`."""
        sql = PipeSql(None, (), None, None, dead_letter_result(failure))
        result = self._catalyst.bounded(self._catalyst.compile(sql.result), revision=key, result=True)
        return CompiledPipe(key, _NO_OFFSET, None, (), (), None, result, None, None, sql)

    def _drop_unused(self) -> None:
        """Drop the expressions that no compiled pipe has any more."""
        queries_in_use = {query for pipe in self._compiled.values() for query in pipe.sql.queries()}
        self._expressions = {
            query: expression for query, expression in self._expressions.items() if query in queries_in_use
        }
        self._allowed_expressions &= {
            text for revision in self.in_force() for _, text in user_expressions(revision.pipe)
        }

    def _is_usable(self, key: str, tables: AbstractSet[str], offset: int | None = None) -> bool:
        """Whether a revision has been compiled (with this offset, if it is given) and its tables exist."""
        pipe = self._compiled.get(key)
        if pipe is None or pipe.source is None or (offset is not None and offset != pipe.offset):
            return False
        return tables >= table_ids(pipe.source.pipe)

    def _compile_pipe(self, revision: PipeRevision, tables: AbstractSet[str], reason: str | None) -> None:
        key = revision.key
        if reason is None and not tables >= table_ids(revision.pipe):
            reason = "the table of a lookup has not been loaded"  # its rows would be null
        try:
            if reason is not None:
                raise SqlProblem(reason)
            self._compile_queries(revision, self._sql(revision.pipe))
        except SqlProblem as problem:
            self._refuse(revision, tables, str(problem))
        except Exception as error:  # any other error that a pipe causes concerns this pipe only
            raise_if_stopped(self._catalyst.spark)
            logger.exception("pipe-not-compiled", pipe=key, offset=revision.offset)
            self._refuse(
                revision, tables, f"it cannot be compiled: {type(error).__name__}: {root_cause(error)[:500]}"
            )

    def _refuse(self, revision: PipeRevision, tables: AbstractSet[str], reason: str) -> None:
        """Keep the revision that was compiled last in force; without one, make dead letters of the events."""
        key = revision.key
        compiled_offset = self._compiled[key].offset if self._is_usable(key, tables) else None
        logger.warning(
            "pipe-broken", pipe=key, offset=revision.offset, error=reason, offset_in_force=compiled_offset
        )
        if compiled_offset is None:
            self._use_stand_in(revision, reason)

    def _use_stand_in(self, revision: PipeRevision, reason: str) -> None:
        """Make dead letters of the events of a revision."""
        stand_in = PipeSql(None, (), None, None, dead_letter_result(f"pipe-broken: {reason}"))
        self._compile_queries(replace(revision, offset=_NO_OFFSET), stand_in)

    def _sql(self, pipe: Pipe) -> PipeSql:
        for path, text in user_expressions(pipe):
            if text in self._allowed_expressions:
                continue
            for problem in violations(self._catalyst.parse(text)):
                raise SqlProblem(f"{path}: {problem}")
            self._allowed_expressions.add(text)
        try:
            return generate_sql(pipe)
        except ValueError as error:
            raise SqlProblem(f"the default of a lookup does not fit its type: {error}") from None

    def _compile_queries(self, revision: PipeRevision, sql: PipeSql) -> None:
        """Compile the new queries of a pipe, and keep the compiled pipe."""
        for query in sql.queries():
            if query not in self._expressions:
                self._expressions[query] = self._catalyst.compile(query)
        self._compiled[revision.key] = self._bound(revision, sql)

    def _bound(self, revision: PipeRevision, sql: PipeSql) -> CompiledPipe:
        enrich = revision.pipe.enrich
        expressions = self._expressions
        bounded = partial(self._catalyst.bounded, revision=f"{revision.key}@{revision.offset}")
        udf = None
        if sql.typed_udf_args and enrich.udf:
            arg_types = self._catalyst.struct_type(expressions[sql.typed_udf_args])
            udf = UdfCall(enrich.udf, arg_types, revision.offset, self._udf_limits)
        return CompiledPipe(
            key=revision.key,
            offset=revision.offset,
            fields=expressions[sql.fields] if sql.fields else None,
            lookup_keys=tuple(expressions[query] for query in sql.lookup_keys),
            lookups_per_wave=tuple(len(names) for names in lookup_waves(enrich)) if sql.lookup_keys else (),
            udf_args=bounded(expressions[sql.udf_args], result=False) if sql.udf_args else None,
            result=bounded(expressions[sql.result], result=True),
            udf=udf,
            source=revision if revision.offset != _NO_OFFSET else None,
            sql=sql,
        )
