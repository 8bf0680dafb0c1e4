"""Checks the SQL expressions of steps with a local Spark, for `hifi check`."""

from collections.abc import Iterator

from pyspark.sql.types import DataType, StructType

from hifi.pipe.model import Enrich, Pipe, SqlType
from hifi.pipe.sources.step import StepInput, StepSource
from hifi.spark.catalyst import Catalyst, SqlProblem
from hifi.spark.check import YamlPath, analyse, analyse_value, require_condition
from hifi.spark.generator import derived_sql, field_types
from hifi.spark.step_sql import refuse_argument, step_sql

_READABLE = frozenset(SqlType)


def step_problems(catalyst: Catalyst, step: StepSource, *read_pipes: Pipe) -> Iterator[tuple[YamlPath, str]]:
    """Yield path in the YAML and message of each problem of a step.

    Args:
        catalyst: of a session.
        step: the declaration.
        *read_pipes: those of `StepSource.inputs`, in order.
    """
    for number, (step_input, read_pipe) in enumerate(zip(step.inputs, read_pipes, strict=True)):
        path: YamlPath = ("source", *step_input.path)
        try:
            types = enriched_types(catalyst, read_pipe.enrich)
        except SqlProblem as problem:
            yield path, f"the types of the fields of the pipe {read_pipe.pipe} are not known: {problem}"
            continue
        scope = StructType()
        for name, kind in (types | {name: kind.value for name, kind in step.key.items()}).items():
            scope = scope.add(name, DataType.fromDDL(kind))
        problems = list(_problems_of_input(catalyst, step, step_input, scope))
        if not problems:
            try:
                catalyst.compile(step_sql(step, types, number).row)
            except SqlProblem as problem:
                problems = [(("fields",), str(problem))]
        for keys, message in problems:
            yield (*path, *keys), message


def _problems_of_input(
    catalyst: Catalyst, step: StepSource, step_input: StepInput, scope: StructType
) -> Iterator[tuple[YamlPath, str]]:
    """Path below that of the input, and message."""
    if step_input.where is not None:
        try:
            require_condition(catalyst, scope, step_input.where)
        except SqlProblem as problem:
            yield ("where",), str(problem)
    for name, text in step_input.fields.items():
        aggregate = step.aggregates.get(name)
        try:
            if aggregate is None:  # the field of a join
                analyse_value(catalyst, scope, text)
            elif aggregate.argument is not None:
                kind = analyse(catalyst, scope, aggregate.argument).simpleString()
                if (refusal := refuse_argument(aggregate, kind)) is not None:
                    yield ("fields", name), refusal
        except SqlProblem as problem:
            yield ("fields", name), str(problem)


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
