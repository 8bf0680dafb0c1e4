"""Checks the SQL expressions of steps with a local Spark, for `hifi check`."""

from collections.abc import Iterable, Iterator, Mapping

from pyspark.sql.types import DataType, StructType

from hifi.pipe.model import Enrich, Pipe, SqlType
from hifi.pipe.sources.step import StepSource
from hifi.spark.catalyst import Catalyst, SqlProblem
from hifi.spark.check import SqlFinding, YamlPath, analyse, require_condition
from hifi.spark.generator import derived_sql, field_types
from hifi.spark.spark_session import local_spark
from hifi.spark.step_sql import refuse_argument, step_sql

_READABLE = frozenset(SqlType)


def check_steps(steps: Iterable[Pipe], pipes: Mapping[str, Pipe]) -> list[SqlFinding]:
    """Parse and analyse the expressions of steps. Starts a small local Spark (some seconds).

    Args:
        steps: pipes with a step, valid but for its SQL.
        pipes: those that they read, by name, valid.

    Returns:
        All problems, in the order of the pipes and their keys.
    """
    with local_spark() as spark:
        catalyst = Catalyst(spark)
        return [
            SqlFinding(pipe.pipe, path, message)
            for pipe in steps
            if isinstance(pipe.source, StepSource)
            for path, message in step_problems(catalyst, pipe.source, pipes[pipe.source.from_])
        ]


def step_problems(catalyst: Catalyst, step: StepSource, read_pipe: Pipe) -> Iterator[tuple[YamlPath, str]]:
    """Yield path in the YAML and message of each problem of a step."""
    types = enriched_types(catalyst, read_pipe.enrich)
    scope = StructType()
    for name, kind in (types | {name: kind.value for name, kind in step.key.items()}).items():
        scope = scope.add(name, DataType.fromDDL(kind))
    found_problem = False
    if step.where is not None:
        try:
            require_condition(catalyst, scope, step.where)
        except SqlProblem as problem:
            found_problem = True
            yield ("source", "where"), str(problem)
    for name, aggregate in step.aggregates.items():
        if aggregate.argument is None:
            continue
        try:
            kind = analyse(catalyst, scope, aggregate.argument).simpleString()
            refusal = refuse_argument(aggregate, kind)
        except SqlProblem as problem:
            refusal = str(problem)
        if refusal is not None:
            found_problem = True
            yield ("source", "fields", name), refusal
    if not found_problem:
        try:
            catalyst.compile(step_sql(step, types).row)
        except SqlProblem as problem:
            yield ("source", "fields"), str(problem)


def enriched_types(catalyst: Catalyst, enrich: Enrich) -> dict[str, str]:
    """Name to SQL type of the fields of a pipe that a step can read: those of which enrich knows the type.

    Raises:
        SqlProblem: Spark rejects an expression of the pipe.
    """
    types = field_types(enrich)
    scope = StructType()
    for name, kind in types.items():
        scope = scope.add(name, DataType.fromDDL(kind))
    for name, derived_field in enrich.derive.items():
        derived_kind = analyse(catalyst, scope, derived_sql(derived_field))
        scope = scope.add(name, derived_kind)
        types[name] = derived_kind.simpleString()
    types |= {name: kind.value for name, kind in (enrich.udf.returns if enrich.udf else {}).items()}
    return {name: kind for name, kind in types.items() if kind in _READABLE}
