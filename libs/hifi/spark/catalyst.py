"""Access to Spark's Catalyst through Py4J: compiles SQL queries to bound expressions and calls them from a plan.

Spark optimizes, generates and serializes a streaming plan again for every batch; with the expressions of 1,000 pipes in
the plan that takes 12 s a batch. So each pipe's expressions are compiled once, put into a broadcast variable, and
called from a small plan that is the same for any number of pipes; see docs/decisions/enrich-expressions.md. Written
against Spark 4.2.0; tests/services/enrich/plan/test_dataframe.py fails when a new version changes what is used here.
"""

import json
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import AnalysisException, PySparkException
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.types import StructType

from hifi.runtime.errors import HifiError
from hifi.spark.generator import INPUT_COLUMNS
from hifi.spark.restrictions import CLOCK_LITERAL, FUNCTIONS, LITERAL_READS_CLOCK, READS_CLOCK, class_name
from hifi.spark.row_query import Steps

JavaObject = Any
"""A reference to a Java object."""

for _name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)  # they print the errors that are caught below

OBJECT: Final = "java.lang.Object"
EXPRESSION: Final = "org.apache.spark.sql.catalyst.expressions.Expression"
BROADCAST: Final = "org.apache.spark.broadcast.Broadcast"
HASH_MAP: Final = "java.util.HashMap"
FUNCTION: Final = "scala.Function1"
CODE_GENERATION: Final = "spark.sql.codegen.factoryMode"
ALWAYS: Final = "CODEGEN_ONLY"
"""Value of `CODE_GENERATION` that makes it an error if code cannot be generated."""
BOUNDED: Final = "hifi.BoundedExpression"
_EXCLUDED_RULES: Final = "spark.sql.optimizer.excludedRules"
_CONSTANT_FOLDING: Final = "org.apache.spark.sql.catalyst.optimizer.ConstantFolding"
_HIDDEN: Final = re.compile(r"(, )?`hifi\.\w+`")
"""A generated column in the names that Spark suggests for an unknown one."""


class SqlProblem(HifiError):
    """Spark rejects a SQL text; the message is Spark's, in one line."""


SQL_FAILURES: Final = (PySparkException, Py4JJavaError, RecursionError)
"""Errors that a SQL text may raise in Spark, and in Python where its tree is read; see `problem_of`."""


def problem_of(error: Exception) -> SqlProblem:
    """The problem of a SQL text that raised one of `SQL_FAILURES`."""
    if isinstance(error, PySparkException):
        return SqlProblem(one_line(error))
    if isinstance(error, Py4JJavaError):
        # Such as StackOverflowError, where an expression is nested too deeply.
        return SqlProblem(f"Spark fails to analyse it: {error.java_exception.toString()}")
    return SqlProblem("it is nested too deeply; split it into several fields")


@dataclass(frozen=True, slots=True)
class SqlBudget:
    """The bounds of a pipe's expressions for one event, and of its constants when they are compiled.

    Attributes:
        cpu_s: CPU time, seconds.
        memory_bytes: of all values that are made, together.
    """

    cpu_s: float = 1.0
    memory_bytes: int = 64 * 2**20


DEFAULT_BUDGET: Final = SqlBudget()


class Catalyst:
    """Compiles SQL texts and builds expressions in one Spark session.

    Args:
        spark: the session.
        budget: of pipes' expressions.
    """

    def __init__(self, spark: SparkSession, budget: SqlBudget = DEFAULT_BUDGET) -> None:
        self.spark = spark
        self._limits = round(budget.cpu_s * 1e9), budget.memory_bytes
        self._context: Any = spark.sparkContext
        jvm: Any = self._context._jvm  # noqa: SLF001 - the only access to Catalyst
        self.jvm: JavaObject = jvm
        self._gateway: JavaObject = self._context._gateway  # noqa: SLF001 - to make Java arrays
        self._no_rows: JavaObject = self._context._jsc.emptyRDD()  # noqa: SLF001
        # Kept, since Py4J asks Java for each part of a class's name whenever it is used.
        self._expressions: JavaObject = jvm.org.apache.spark.sql.catalyst.expressions
        self._attributes = getattr(self._expressions, "package$AttributeSeq")
        self._bind_references = self._expressions.BindReferences.bindReferences
        self._create_struct = getattr(getattr(self._expressions, "CreateStruct$"), "MODULE$")
        self._invocation = self._expressions.objects.Invoke
        self._literal = self._expressions.Literal
        self._current_like = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
        optimizer_rules = jvm.org.apache.spark.sql.catalyst.optimizer
        self._replacing = getattr(getattr(optimizer_rules, "ReplaceExpressions$"), "MODULE$")
        self._special_times = getattr(getattr(optimizer_rules, "SpecialDatetimeValues$"), "MODULE$")
        self._to_seq = jvm.org.apache.spark.api.python.PythonUtils.toSeq
        self._list = jvm.java.util.ArrayList
        self._columns = jvm.org.apache.spark.sql.classic.ExpressionUtils
        self._budget = jvm.hifi.SqlBudget
        self._exact_arithmetic = jvm.hifi.ExactArithmetic()
        self._bounded_expression = jvm.hifi.BoundedExpression
        self.pipe_session = self._without_constant_folding()
        self._session: JavaObject = self.pipe_session._jsparkSession.sessionState()  # noqa: SLF001
        self._all_commands = getattr(self._session, "executePlan$default$2")()
        self._parser = self._session.sqlParser()
        self._input: DataFrame | None = None
        self._refused_classes: dict[str, str] | None = None
        self._classes: dict[str, JavaObject] = {}

    def parse(self, text: str) -> list[dict[str, Any]]:
        """Parse one expression to its unresolved nodes, each a dict with the node's `class`.

        Raises:
            SqlProblem: the text is not one expression, has a number or a type that Spark cannot represent, is nested
                more deeply than Spark can parse, or has a literal for which the parser reads the clock.
        """
        if CLOCK_LITERAL.search(text):
            raise SqlProblem(LITERAL_READS_CLOCK)
        try:
            if (refusal := self._budget.refusal(text)) is not None:
                raise SqlProblem(refusal)
            return json.loads(self._parser.parseExpression(text).toJSON())  # type: ignore[no-any-return]
        except SQL_FAILURES as error:
            raise problem_of(error) from None

    def analysed_classes(self, frame: DataFrame) -> set[str]:
        """Names of the classes in the analysed plan of a DataFrame: names and replacements are resolved in it."""
        return set(_classes(json.loads(frame._jdf.queryExecution().analyzed().toJSON())))  # noqa: SLF001

    def refused_classes(self) -> dict[str, str]:
        """Name of each class of expressions that only functions make that are not allowed, to such a function."""
        if self._refused_classes is None:
            registry = self.spark._jsparkSession.sessionState().functionRegistry()  # noqa: SLF001
            function_names = registry.listFunction()
            classes: dict[str, list[str]] = {}
            for index in range(function_names.size()):
                name = function_names.apply(index)
                information = registry.lookupFunction(name).get()
                expression_class = class_name({"class": information.getClassName()})
                classes.setdefault(expression_class, []).append(name.funcName())
            allowed_classes = {
                name for name, functions in classes.items() if not FUNCTIONS.isdisjoint(functions)
            }
            self._refused_classes = {
                # a builder makes expressions of another class, which has its name
                expression_class: functions[0]
                for name, functions in classes.items()
                if name not in allowed_classes
                for expression_class in (name, name.removesuffix("Builder").removesuffix("Expression"))
                if expression_class not in allowed_classes
            }
        return self._refused_classes

    def compile(self, steps: Steps) -> JavaObject:
        """Compile a query of one row to an expression that is bound to rows of `INPUT_COLUMNS`.

        Raises:
            SqlProblem: Spark rejects it.
        """
        if self._input is None:
            self._input = self.pipe_frame(INPUT_COLUMNS)
        frame = self._input
        try:
            for step in steps:
                frame = frame.selectExpr(*step)
            self._require_single_row(frame)
            exact_plan = self._exact_arithmetic.exact(frame._jdf.queryExecution().analyzed())  # noqa: SLF001
            optimized_plan = self._session.executePlan(exact_plan, self._all_commands).optimizedPlan()
            projections = self._projections(self._budget.bounded(optimized_plan, *self._limits))
        except SQL_FAILURES as error:
            raise SqlProblem(_HIDDEN.sub("", str(problem_of(error))).replace("[, ", "[")) from None
        row: JavaObject | None = None
        for projection in projections[:-1]:
            row = self._evaluated(self._row(projection), row)
        result_expression = self._bound(projections[-1]).head()
        return self._evaluated(result_expression.child(), row)

    def evaluate(self, steps: Steps) -> Any:
        """The value of a query of one row of nulls.

        Raises:
            SqlProblem: Spark rejects it, or it exceeds the budget or fails.
        """
        expression = self.compile(steps)
        nulls = self._expressions.GenericInternalRow(
            self.array([None] * len(self.pipe_frame(INPUT_COLUMNS).columns))
        )
        try:
            return self._budget.evaluate(expression, nulls, *self._limits)
        except (Py4JJavaError, PySparkException) as error:
            raise SqlProblem(str(error)) from None

    def bounded(self, expression: JavaObject, revision: str, *, result: bool) -> JavaObject:
        """A Java object (`BOUNDED`) whose `eval` evaluates a compiled expression within the budget.

        `eval` takes the input and the record's headers, which say which event it is.

        Args:
            expression: as returned by `compile`.
            revision: key and offset of the pipe's revision; events of it that exceed the budget are counted together.
            result: whether it makes `PipeSql.result`, which then tells the reason; others are null.
        """
        return self._bounded_expression(expression, revision, *self._limits, result)

    def _evaluated(self, expression: JavaObject, row: JavaObject | None) -> JavaObject:
        """An expression of the value of a bound expression on the row that another one makes; None: on the input."""
        if row is None:
            return expression
        return_type = expression.dataType()
        return self._invoke(self.constant(expression, EXPRESSION), "eval", return_type, [row])

    def row_function(self, frame: DataFrame) -> JavaObject:
        """A serializable Java function (`FUNCTION`) from a row of a frame's input to the row that the frame makes.

        Where it is first called, Spark generates code for it, or interprets it from then on if the settings of the
        caller say so. It keeps state while it runs.

        Args:
            frame: projections of an empty DataFrame, whose columns are the input.
        """
        deserializer = getattr(
            self.jvm.org.apache.spark.sql.catalyst.encoders, "ExpressionEncoder$Deserializer"
        )
        first_function, *later_functions = [
            deserializer(self._sequence([self._row(projection)]))
            for projection in self._projections(frame._jdf.queryExecution().optimizedPlan())  # noqa: SLF001
        ]
        function = first_function
        for later_function in later_functions:
            function = function.andThen(later_function)
        return function

    def generate_code(self, functions: Iterable[JavaObject], columns: int) -> None:
        """Call row functions with a row of nulls, so that their code is generated now.

        Args:
            functions: of `row_function`, not called before.
            columns: of their input.
        """
        nulls = self._expressions.GenericInternalRow(self.array([None] * columns))
        # The setting is that of a copy of the session: other threads change and read those of the session itself.
        session = self.spark._jsparkSession  # noqa: SLF001
        session_copy = session.cloneSession()
        session_copy.conf().set(CODE_GENERATION, ALWAYS)
        sessions = self.spark._get_j_spark_session_class(self.jvm)  # noqa: SLF001
        sessions.setActiveSession(session_copy)
        try:
            for function in functions:
                function.apply(nulls)
        except CapturedException as error:
            causes = error._stackTrace.split("Caused by: ")[1:]  # noqa: SLF001 - its own text is the expression alone
            error.add_note("Caused by: " + "Caused by: ".join(cause[:1_000] for cause in causes))
            raise
        finally:
            sessions.setActiveSession(session)

    def _bound(self, project: JavaObject) -> JavaObject:
        """The named expressions of a projection, a Scala sequence, bound to its input."""
        return self._bind_references(project.projectList(), self._attributes(project.child().output()))

    def _row(self, project: JavaObject) -> JavaObject:
        """An expression of the row that a projection makes."""
        return self._create_struct.apply(self._bound(project))

    def empty_frame(self, columns: str | StructType) -> DataFrame:
        """An empty DataFrame of these columns, declared as in SQL or as a type."""
        return self._empty_frame(self.spark, columns)

    def pipe_frame(self, columns: str | StructType) -> DataFrame:
        """An empty DataFrame from which expressions of pipes may be selected: their constants are not evaluated."""
        return self._empty_frame(self.pipe_session, columns)

    def _empty_frame(self, session: SparkSession, columns: str | StructType) -> DataFrame:
        """As `createDataFrame([], columns)`, which takes four times as long to serialize no rows."""
        schema = StructType.fromDDL(columns) if isinstance(columns, str) else columns
        java_session = session._jsparkSession  # noqa: SLF001
        frame = java_session.createDataFrame(self._no_rows, java_session.parseDataType(schema.json()))
        return DataFrame(frame, session)

    def require_single_row(self, frame: DataFrame) -> None:
        """Check that the projections of an empty DataFrame depend on their own row only.

        Raises:
            SqlProblem: one aggregates, generates rows, reads the clock, or is random.
        """
        self._require_single_row(frame)
        self._projections(frame._jdf.queryExecution().optimizedPlan())  # noqa: SLF001

    def overflowing(self, frame: DataFrame) -> list[tuple[str, str]]:
        """The arithmetic of a frame whose result may not fit its type: SQL and type of sums in int, and of products."""
        analysed_plan = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
        return [(sql, kind) for sql, kind in self._exact_arithmetic.overflowing(analysed_plan)]

    def _without_constant_folding(self) -> SparkSession:
        """A copy of the session that leaves constants to `SqlBudget.bounded`, which bounds what they cost."""
        session_copy = self.spark._jsparkSession.cloneSession()  # noqa: SLF001
        session_copy.conf().set(
            _EXCLUDED_RULES, f"{session_copy.conf().get(_EXCLUDED_RULES)},{_CONSTANT_FOLDING}"
        )
        return SparkSession(self.spark.sparkContext, session_copy)

    def _require_single_row(self, frame: DataFrame) -> None:
        analysed_plan: JavaObject = frame._jdf.queryExecution().analyzed()  # noqa: SLF001
        if analysed_plan.containsPattern(self._current_like):
            raise SqlProblem(f"it {READS_CLOCK}")
        if not analysed_plan.deterministic():
            raise SqlProblem("its result differs each time, so a replayed event would get another one")
        plan = self._replacing.apply(analysed_plan)
        if not self._special_times.apply(plan).fastEquals(plan):
            raise SqlProblem(LITERAL_READS_CLOCK)

    def _projections(self, plan: JavaObject) -> list[JavaObject]:
        """The projections of a query of an empty DataFrame, in the order of evaluation.

        Args:
            plan: optimized, since analysed trees still contain expressions that only the optimizer replaces.

        Raises:
            SqlProblem: it has other nodes.
        """
        projections = []
        while (name := plan.nodeName()) == "Project":
            projections.append(plan)
            plan = plan.child()
        if name != "LogicalRDD":
            raise SqlProblem(
                "aggregates, window functions, generators and subqueries need more than one event"
            )
        return projections[::-1]

    def array(self, items: Sequence[JavaObject]) -> JavaObject:
        """A Java array of objects."""
        array = self._gateway.new_array(self.jvm.java.lang.Object, len(items))
        for index, item in enumerate(items):
            array[index] = item
        return array

    def task_copies(self, array: JavaObject, count: int) -> JavaObject:
        """An array of deep copies, one for each task: expressions keep state while they run."""
        clone = self.jvm.org.apache.commons.lang3.SerializationUtils.clone
        return self.array([clone(array) for _ in range(count)])

    def broadcast(self, value: JavaObject) -> JavaObject:
        """A broadcast variable of a Java object."""
        return self._context._jsc.broadcast(value)  # noqa: SLF001

    def unpickle(self, path: str) -> JavaObject:
        """The Java form of an object that Python pickled into a file; a dict becomes a HashMap."""
        files, paths = self.jvm.java.nio.file.Files, self.jvm.java.nio.file.Paths
        content = files.readAllBytes(paths.get(path, self._gateway.new_array(self.jvm.java.lang.String, 0)))
        return self.jvm.net.razorvine.pickle.Unpickler().loads(content)

    def constant(self, value: JavaObject, kind: str) -> JavaObject:
        """An expression that returns a Java object."""
        return self._literal(value, self._object_type(kind))

    def call(
        self, target: JavaObject, method: str, returns: str | StructType, *arguments: JavaObject
    ) -> JavaObject:
        """An expression that calls a method on the result of another; null when that or an argument is null.

        It is marked as not deterministic, so Spark neither folds it into a constant nor moves it.

        Args:
            target: expression of the object.
            method: the method's name.
            returns: SQL type, or the name of a Java class.
            arguments: expressions.
        """
        return self._invoke(target, method, self._type(returns), arguments)

    def _invoke(
        self, target: JavaObject, method: str, kind: JavaObject, arguments: Sequence[JavaObject]
    ) -> JavaObject:
        empty_sequence = self._sequence([])
        return self._invocation(
            target, method, kind, self._sequence(arguments), empty_sequence, True, True, False
        )

    def call_static(self, cls: str, method: str, returns: str, *arguments: JavaObject) -> JavaObject:
        """An expression that calls a static method of a class; otherwise as `call`."""
        empty_sequence = self._sequence([])
        no_option = self.jvm.scala.Option.apply(None)
        return self._expressions.objects.StaticInvoke(
            self._class(cls),
            self._type(returns),
            method,
            self._sequence(arguments),
            empty_sequence,
            True,
            True,
            False,
            no_option,
        )

    def null_on_error(self, expression: JavaObject) -> JavaObject:
        """An expression that gives null where the given one throws."""
        return self._expressions.TryEval(expression)

    def struct_type(self, expression: JavaObject) -> StructType:
        """The type of a compiled expression that returns a struct."""
        return StructType.fromJson(json.loads(expression.dataType().json()))

    def expression(self, column: Column) -> JavaObject:
        """The expression of a column."""
        return self._columns.expression(column._jc)  # noqa: SLF001

    def column(self, expression: JavaObject) -> Column:
        """The column of an expression."""
        return ClassicColumn(self._columns.column(expression))

    def _sequence(self, items: Sequence[JavaObject]) -> JavaObject:
        java_list = self._list()
        for item in items:
            java_list.add(item)
        return self._to_seq(java_list)

    def _type(self, name: str | StructType) -> JavaObject:
        """A SQL type; the type of a Java class where the name contains a dot."""
        if isinstance(name, StructType):
            return self.jvm.org.apache.spark.sql.types.DataType.fromJson(name.json())
        if "." in name and "<" not in name:
            return self._object_type(name)
        return self.jvm.org.apache.spark.sql.types.DataType.fromDDL(name)

    def _object_type(self, cls: str) -> JavaObject:
        return self.jvm.org.apache.spark.sql.types.ObjectType(self._class(cls))

    def _class(self, name: str) -> JavaObject:
        if name not in self._classes:
            loader = self.jvm.java.lang.Thread.currentThread().getContextClassLoader()
            self._classes[name] = self.jvm.java.lang.Class.forName(name, True, loader)
        return self._classes[name]


def _classes(node: Any) -> Iterator[str]:
    """Names of the classes in a tree that Catalyst wrote as JSON."""
    if isinstance(node, dict):
        if "class" in node:
            yield class_name(node)
        for value in node.values():
            yield from _classes(value)
    elif isinstance(node, list):
        for value in node:
            yield from _classes(value)


def one_line(error: PySparkException) -> str:
    """Spark's error message in one line, without the plan and the advice on settings."""
    text = str(error.getMessage() or error).strip()
    summary = text.split("\n\n")[0].split("\n== SQL")[0].split(" SQLSTATE:")[0].split(";\n")[0]
    summary = " ".join(summary.split()).strip()
    kind = error.getCondition() or ""
    if isinstance(error, AnalysisException) and summary.startswith("["):
        summary = summary.partition("] ")[2]
    return summary.removeprefix(f"[{kind}] ") or type(error).__name__
