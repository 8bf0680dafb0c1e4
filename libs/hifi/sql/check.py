"""What `hifi check` asks of enrich: does Spark take every expression of these pipes?"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, NullType, StringType, StructType

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
    problems = list(_expressions(catalyst, pipe))
    if not problems:
        try:
            catalyst.compile(sql.write(pipe).all())
        except (SqlProblem, ValueError) as problem:
            problems.append((("enrich",), str(problem)))
    for path, message in [*_lookups(pipe), *_udf(pipe, trigger), *problems]:
        yield SqlFinding(pipe.pipe, path, message)


def _lookups(pipe: Pipe) -> Iterator[tuple[Path, str]]:
    for name, lookup in pipe.enrich.lookups.items():
        for column in lookup.key.values():
            if lookup.types.get(column) is SqlType.DOUBLE:
                path: Path = ("enrich", "lookups", name, "types", column)
                yield path, "a double cannot be a key; use bigint or string"


def _udf(pipe: Pipe, trigger: Trigger) -> Iterator[tuple[Path, str]]:
    if pipe.enrich.udf is None:
        return
    if trigger == "real-time":
        yield (
            ("enrich", "udf"),
            "a UDF runs with the micro-batch trigger only; use SQL, or micro-batch for the mesh",
        )
    try:
        udf.load(pipe.enrich.udf.function)
    except Misconfigured as error:
        yield ("enrich", "udf", "function"), str(error)


def _expressions(catalyst: Catalyst, pipe: Pipe) -> Iterator[tuple[Path, str]]:
    enrich = pipe.enrich
    scope = StructType()
    for name, declared in sql.columns(enrich).items():
        scope = scope.add(name, DataType.fromDDL(declared))
    for name, derived in enrich.derive.items():
        kind: DataType = StringType()
        try:
            kind = _derived(catalyst, scope, sql.derived_sql(derived))
        except SqlProblem as problem:
            path: Path = ("enrich", "derive", name)
            yield (path if isinstance(derived, str) else (*path, "sql")), str(problem)
        scope = scope.add(name, kind)
    for name, returned in (enrich.udf.returns if enrich.udf else {}).items():
        scope = scope.add(name, DataType.fromDDL(returned.value))
    conditions: list[tuple[Path, str | None]] = [(("enrich", "filter"), enrich.filter)]
    conditions += [(("destinations", index, "when"), one.when) for index, one in enumerate(pipe.destinations)]
    for path, text in conditions:
        try:
            if text:
                _condition(catalyst, scope, text)
        except SqlProblem as problem:
            yield path, str(problem)


def _derived(catalyst: Catalyst, scope: StructType, text: str) -> DataType:
    kind = _analyse(catalyst, scope, text)
    try:
        catalyst.spark.createDataFrame([], StructType().add("x", kind)).select(F.to_json(F.struct("x")))
    except PySparkException as error:
        raise SqlProblem(f"its result cannot be written as JSON: {sentence(error)}") from None
    return kind


def _condition(catalyst: Catalyst, scope: StructType, text: str) -> None:
    kind = _analyse(catalyst, scope, text)
    if not isinstance(kind, BooleanType | NullType):
        raise SqlProblem(f"a condition must be true or false, and this gives {kind.simpleString()}")


def _analyse(catalyst: Catalyst, scope: StructType, text: str) -> DataType:
    """The type of an expression.

    Raises:
        SqlProblem: it is refused.
    """
    if problems := refusals(catalyst.parse(text)):
        raise SqlProblem("; ".join(problems))
    try:
        frame = catalyst.spark.createDataFrame([], scope).select(F.expr(text).alias("result"))
        catalyst.refuse_several(frame._jdf.queryExecution().analyzed())  # noqa: SLF001
    except PySparkException as error:
        raise SqlProblem(_known(sentence(error), error, scope)) from None
    return frame.schema["result"].dataType


def _known(text: str, error: PySparkException, scope: StructType) -> str:
    """The names that can be used, where the problem is an unknown one."""
    if not str(error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
        return text
    parameters = error.getMessageParameters() or {}
    names = ", ".join(scope.names) or "none; declare them in enrich.fields"
    return f"{parameters.get('objectName', 'a name')} is no field here; known are {names}"
