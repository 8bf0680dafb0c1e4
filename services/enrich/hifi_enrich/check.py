"""What `hifi check` asks of enrich: does Spark take every expression of these pipes?"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, NullType, StructType

from hifi.errors import Misconfigured
from hifi.pipe.model import Pipe, SqlType
from hifi_enrich import sql, udf
from hifi_enrich.catalyst import Catalyst, SqlProblem, sentence
from hifi_enrich.refuse import refusals
from hifi_enrich.settings import Trigger

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class SqlFinding:
    """What is wrong with an expression: the pipe, the path in its YAML, and a sentence."""

    pipe: str
    path: Path
    message: str


def check_sql(pipes: Iterable[Pipe], trigger: Trigger = "micro-batch") -> list[SqlFinding]:
    """Parse and analyse every expression against its pipe's typed fields. Starts a small local Spark: some seconds.

    Args:
        pipes: read and valid as far as the model goes.
        trigger: of the mesh that they are for; with `real-time` a UDF is a problem.

    Returns:
        Everything that is wrong, in the order of the pipes and their keys.
    """
    from hifi_enrich.session import local

    with local() as spark:
        catalyst = Catalyst(spark)
        return [finding for pipe in pipes for finding in check_pipe(catalyst, pipe, trigger)]


def check_pipe(catalyst: Catalyst, pipe: Pipe, trigger: Trigger) -> Iterator[SqlFinding]:
    """The problems of one pipe."""

    def found(path: Path, message: str) -> SqlFinding:
        return SqlFinding(pipe.pipe, path, message)

    enrich = pipe.enrich
    for name, lookup in enrich.lookups.items():
        for column in lookup.key.values():
            if lookup.types.get(column) is SqlType.DOUBLE:
                yield found(
                    ("enrich", "lookups", name, "types", column),
                    "a double cannot be a key; use bigint or string",
                )
    whole = True
    scope = _scope(catalyst, sql.columns(enrich))
    for name, derived in enrich.derive.items():
        path: Path = (
            ("enrich", "derive", name) if isinstance(derived, str) else ("enrich", "derive", name, "sql")
        )
        try:
            scope = _derive(catalyst, scope, name, sql.derived_sql(derived))
        except SqlProblem as problem:
            whole = False
            yield found(path, str(problem))
            scope = scope.withColumn(name, F.lit(None).cast("string"))
    if enrich.udf is not None:
        if trigger == "real-time":
            yield found(
                ("enrich", "udf"),
                "a UDF runs with the micro-batch trigger only; use SQL, or run the mesh with micro-batch",
            )
        try:
            udf.load(enrich.udf.function)
        except Misconfigured as error:
            yield found(("enrich", "udf", "function"), str(error))
        for name, kind in enrich.udf.returns.items():
            scope = scope.withColumn(name, F.lit(None).cast(kind.value))
    conditions: list[tuple[Path, str]] = [(("enrich", "filter"), enrich.filter)] if enrich.filter else []
    conditions += [
        (("destinations", index, "when"), one.when) for index, one in enumerate(pipe.destinations) if one.when
    ]
    for path, text in conditions:
        try:
            _condition(catalyst, scope, text)
        except SqlProblem as problem:
            whole = False
            yield found(path, str(problem))
    if whole:
        try:
            catalyst.compile(sql.write(pipe).all())
        except SqlProblem as problem:
            yield found(("enrich",), str(problem))


def _scope(catalyst: Catalyst, columns: dict[str, str]) -> DataFrame:
    schema = ", ".join(f"`{name}` {kind}" for name, kind in columns.items())
    return catalyst.spark.createDataFrame([], schema or StructType([]))


def _derive(catalyst: Catalyst, scope: DataFrame, name: str, text: str) -> DataFrame:
    _analyse(catalyst, scope, text)
    try:
        wider = scope.select("*", F.expr(text).alias(name))
        wider.select(F.to_json(F.struct(name)))._jdf.queryExecution().assertAnalyzed()  # type: ignore[operator]  # noqa: SLF001
    except PySparkException as error:
        raise SqlProblem(f"its result cannot be written as JSON: {sentence(error)}") from None
    return wider


def _condition(catalyst: Catalyst, scope: DataFrame, text: str) -> None:
    kind = _analyse(catalyst, scope, text)
    if not isinstance(kind, BooleanType | NullType):
        raise SqlProblem(f"a condition must be true or false, and this gives {kind.simpleString()}")


def _analyse(catalyst: Catalyst, scope: DataFrame, text: str) -> Any:
    """The type of an expression.

    Raises:
        SqlProblem: it is refused.
    """
    if problems := refusals(catalyst.parse(text)):
        raise SqlProblem("; ".join(problems))
    try:
        frame = scope.select(F.expr(text).alias("result"))
        plan = frame._jdf.queryExecution().analyzed()  # type: ignore[operator]  # noqa: SLF001
        before = scope._jdf.queryExecution().analyzed()  # type: ignore[operator]  # noqa: SLF001
    except PySparkException as error:
        raise SqlProblem(_known(sentence(error), error, scope)) from None
    if plan.nodeName() != "Project" or not plan.child().fastEquals(before):
        raise SqlProblem(
            "aggregates, window functions and generators see several events, an expression sees one"
        )
    if not plan.projectList().apply(0).deterministic():
        raise SqlProblem("its result differs each time, so a replayed event would get another one")
    return frame.schema["result"].dataType


def _known(text: str, error: PySparkException, scope: DataFrame) -> str:
    """The names that can be used, where the problem is an unknown one."""
    if not str(error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
        return text
    parameters = error.getMessageParameters() or {}
    names = ", ".join(scope.columns) or "none; declare them in enrich.fields"
    return f"{parameters.get('objectName', 'a name')} is no field here; known are {names}"
