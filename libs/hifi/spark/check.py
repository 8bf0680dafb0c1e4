"""Checks the SQL expressions of pipes with a local Spark, for `hifi check`."""

from collections.abc import Iterator
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, NullType, StringType, StructType

from hifi.pipe.model import Pipe, SqlType, Trigger
from hifi.spark import generator
from hifi.spark.catalyst import SQL_FAILURES, Catalyst, SqlProblem, one_line, problem_of
from hifi.spark.restrictions import refused_nodes, violations

YamlPath = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class SqlFinding:
    """A problem of an expression, or a note on it: the path in the YAML of its pipe, and a message."""

    path: YamlPath
    message: str
    is_note: bool = False


def check_pipe(catalyst: Catalyst, pipe: Pipe, trigger: Trigger) -> Iterator[SqlFinding]:
    """Yield the problems of one pipe, and what is valid but may surprise."""
    notes: list[tuple[YamlPath, str]] = []
    problems = list(_expressions(catalyst, pipe, notes))
    if not problems:
        try:
            for query in generator.generate_sql(pipe).queries():
                catalyst.compile(query)
        except (SqlProblem, ValueError) as problem:
            problems.append((("enrich",), str(problem)))
    for path, message in [*_lookups(pipe), *_udf(pipe, trigger), *problems]:
        yield SqlFinding(path, message)
    for path, message in notes:
        yield SqlFinding(path, message, is_note=True)


def _lookups(pipe: Pipe) -> Iterator[tuple[YamlPath, str]]:
    types = generator.field_types(pipe.enrich)
    for name, lookup in pipe.enrich.lookups.items():
        for field, column in lookup.key.items():
            path: YamlPath = ("enrich", "lookups", name)
            if lookup.types.get(column) is SqlType.DOUBLE:
                yield (*path, "types", column), "a double cannot be a key; use bigint or string"
            if types.get(field) == SqlType.DOUBLE.value:
                yield (
                    (*path, "key", field),
                    "the field is a double, which cannot be a key; use bigint or string",
                )
            is_text = lookup.types.get(column, SqlType.STRING) is SqlType.STRING
            if types.get(field) == SqlType.TIMESTAMP.value and is_text:
                yield (
                    (*path, "key", field),
                    f"the field is a timestamp and the column a string; set `types: {{{column}: timestamp}}`",
                )


def _udf(pipe: Pipe, trigger: Trigger) -> Iterator[tuple[YamlPath, str]]:
    if pipe.enrich.udf is None:
        return
    if trigger == "real-time":
        yield (
            ("enrich", "udf"),
            "a UDF needs the micro-batch trigger; use SQL instead, or run the mesh with the trigger auto",
        )


def _expressions(
    catalyst: Catalyst, pipe: Pipe, notes: list[tuple[YamlPath, str]]
) -> Iterator[tuple[YamlPath, str]]:
    enrich = pipe.enrich
    scope = StructType()
    for name, sql_type in generator.field_types(enrich).items():
        scope = scope.add(name, DataType.fromDDL(sql_type))
    for name, derived_field in enrich.derive.items():
        result_type: DataType = StringType()
        try:
            result_type = analyse_value(catalyst, scope, generator.derived_sql(derived_field))
            notes += _overflows(
                catalyst, scope, generator.derived_sql(derived_field), ("enrich", "derive", name)
            )
        except SqlProblem as problem:
            path: YamlPath = ("enrich", "derive", name)
            yield (path if isinstance(derived_field, str) else (*path, "sql")), str(problem)
        scope = scope.add(name, result_type)
    for name, return_type in (enrich.udf.returns if enrich.udf else {}).items():
        scope = scope.add(name, DataType.fromDDL(return_type.value))
    conditions: list[tuple[YamlPath, str | None]] = [(("enrich", "filter"), enrich.filter)]
    conditions += [
        (("destinations", index, "when"), destination.when)
        for index, destination in enumerate(pipe.destinations)
    ]
    are_valid = True
    for path, text in conditions:
        try:
            if text:
                require_condition(catalyst, scope, text)
                notes += _overflows(catalyst, scope, text, path)
        except SqlProblem as problem:
            are_valid = False
            yield path, str(problem)
    if are_valid:
        notes += _unrouted(catalyst, scope, pipe)


def _overflows(
    catalyst: Catalyst, scope: StructType, text: str, path: YamlPath
) -> Iterator[tuple[YamlPath, str]]:
    frame = catalyst.pipe_frame(scope).select(F.expr(text))
    for sql, kind in catalyst.overflowing(frame):
        advice = "declare its fields bigint" if kind == "int" else "cast a factor to decimal(38, 0)"
        yield path, f"{sql} is null where it does not fit {kind}; {advice} if that can happen"


def _unrouted(catalyst: Catalyst, scope: StructType, pipe: Pipe) -> Iterator[tuple[YamlPath, str]]:
    """Conditions of which none is true while all fields are null."""
    conditions = [destination.when for destination in pipe.destinations]
    condition_texts = [text for text in conditions if text]
    if len(condition_texts) < max(len(conditions), 2):
        return
    nulls = [f"cast(null as {field.dataType.simpleString()}) AS `{field.name}`" for field in scope.fields]
    any_met = " or ".join(f"coalesce(({text}\n), false)" for text in condition_texts)
    try:
        reaches_destination = catalyst.evaluate(
            ((*nulls, "1 AS `hifi.one`"), (f"({any_met}) AS `hifi.result`",))
        )
    except SqlProblem:  # such as an error that only a value causes
        return
    if not reaches_destination:
        message = (
            "a comparison with null is neither true nor false, so an event whose fields are null or absent reaches no"
            " destination and ends as filtered; compare with `is distinct from` or `coalesce` to route it"
        )
        yield ("destinations", 0, "when"), message


def analyse_value(catalyst: Catalyst, scope: StructType, text: str) -> DataType:
    """The type of an expression whose value is written as JSON.

    Raises:
        SqlProblem: Spark rejects it, or it is not allowed.
    """
    kind = analyse(catalyst, scope, text)
    try:
        catalyst.pipe_frame(StructType().add("x", kind)).select(F.to_json(F.struct("x")))
    except SQL_FAILURES as error:
        raise SqlProblem(f"its result cannot be written as JSON: {problem_of(error)}") from None
    return kind


def require_condition(catalyst: Catalyst, scope: StructType, text: str) -> None:
    """Check that an expression is a condition.

    Raises:
        SqlProblem: it is none, Spark rejects it, or it is not allowed.
    """
    kind = analyse(catalyst, scope, text)
    if not isinstance(kind, BooleanType | NullType):
        raise SqlProblem(f"a condition must be a boolean; this is {kind.simpleString()}")


def analyse(catalyst: Catalyst, scope: StructType, text: str) -> DataType:
    """The type of an expression.

    Args:
        catalyst: of a session.
        scope: the fields that it can use.
        text: of the expression.

    Raises:
        SqlProblem: Spark rejects it, or it is not allowed.
    """
    if problems := violations(catalyst.parse(text)):
        raise SqlProblem("; ".join(problems))
    try:
        frame = catalyst.pipe_frame(scope).select(F.expr(text).alias("result"))
        if problems := refused_nodes(catalyst.analysed_classes(frame), catalyst.refused_classes()):
            raise SqlProblem("; ".join(problems))
        catalyst.require_single_row(frame)
    except PySparkException as error:
        raise SqlProblem(_message(one_line(error), error, scope)) from None
    except SQL_FAILURES as error:
        raise problem_of(error) from None
    return frame.schema["result"].dataType


def _message(text: str, error: PySparkException, scope: StructType) -> str:
    """Spark's message; for an unknown name one that lists the known ones."""
    if not str(error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
        return text
    parameters = error.getMessageParameters() or {}
    field_names = ", ".join(scope.names) or "none; declare them in enrich.fields"
    return f"{parameters.get('objectName', 'a name')} is not a field here; the fields are {field_names}"
