"""The one place that reaches into Spark's Catalyst: SQL text to bound expressions, and calls of them from a plan.

A plan that held every pipe's expressions would be analysed, optimized, generated and serialized again for every batch:
with 1,000 pipes that takes 12 s a batch. So each pipe's expressions are analysed once, put into a broadcast variable,
and called from a small constant plan that looks the same however many pipes there are; see
docs/decisions/enrich-expressions.md. Written against Spark 4.2.0; the tests of this module tell when a new version
moved something.
"""

import json
import logging
from collections.abc import Sequence
from typing import Any, Final

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.classic.column import Column as ClassicColumn
from pyspark.sql.types import StructType

from hifi.errors import HifiError
from hifi_enrich.refuse import CLOCK_WHY
from hifi_enrich.sql import INPUT

Java = Any
"""A reference to a Java object."""

for _name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)  # they print what is caught below

OBJECT: Final = "java.lang.Object"
EXPRESSION: Final = "org.apache.spark.sql.catalyst.expressions.Expression"
BROADCAST: Final = "org.apache.spark.broadcast.Broadcast"
HASH_MAP: Final = "java.util.HashMap"


class SqlProblem(HifiError):
    """A SQL text that Spark does not take, with its own words in one line."""


class Catalyst:
    """Compiles SQL texts and builds calls, in one Spark session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._context: Any = spark.sparkContext
        jvm: Any = self._context._jvm  # noqa: SLF001 - the only door to Catalyst
        self.jvm: Java = jvm
        self._gateway: Java = self._context._gateway  # noqa: SLF001 - to make Java arrays
        self._expressions: Java = jvm.org.apache.spark.sql.catalyst.expressions
        self._columns = jvm.org.apache.spark.sql.classic.ExpressionUtils
        self._parser = spark._jsparkSession.sessionState().sqlParser()  # noqa: SLF001
        self._inputs: dict[str, DataFrame] = {}
        self._classes: dict[str, Java] = {}

    def parse(self, text: str) -> list[dict[str, Any]]:
        """The nodes of one expression, unresolved, each with its `class`.

        Raises:
            SqlProblem: it is not one expression.
        """
        try:
            return json.loads(self._parser.parseExpression(text).toJSON())  # type: ignore[no-any-return]
        except ParseException as error:
            raise SqlProblem(sentence(error)) from None

    def compile(self, texts: Sequence[str], columns: str = INPUT) -> list[Java]:
        """Expressions bound to rows of some columns (as SQL declares them), in the order of the texts.

        Raises:
            SqlProblem: one of the texts does not fit; which one is not told.
        """
        if columns not in self._inputs:
            self._inputs[columns] = self.spark.createDataFrame([], columns)
        try:
            frame = self._inputs[columns].select(
                *[F.expr(text).alias(f"c{index}") for index, text in enumerate(texts)]
            )
            execution: Java = frame._jdf.queryExecution()  # noqa: SLF001
            self.refuse_several(execution.analyzed())
            # Optimized, since analysed trees still hold expressions that exist only to be replaced.
            plan = execution.optimizedPlan()
        except PySparkException as error:
            raise SqlProblem(sentence(error)) from None
        attributes = getattr(self._expressions, "package$AttributeSeq")(plan.child().output())
        projected = plan.projectList()
        bind = self._expressions.BindReferences.bindReference
        return [bind(projected.apply(index).child(), attributes, False) for index in range(projected.size())]

    def refuse_several(self, plan: Java) -> None:
        """Make sure that an analysed projection looks at nothing but its own row.

        Raises:
            SqlProblem: it aggregates, multiplies rows, reads the clock, or rolls dice.
        """
        if plan.nodeName() != "Project" or plan.child().nodeName() != "LogicalRDD":
            raise SqlProblem(
                "aggregates, window functions, generators and subqueries see more than one event"
            )
        if plan.containsPattern(self.jvm.org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()):
            raise SqlProblem(f"it {CLOCK_WHY}")
        if not plan.deterministic():
            raise SqlProblem("its result differs each time, so a replayed event would get another one")

    def array(self, items: Sequence[Java]) -> Java:
        """A Java array of objects."""
        array = self._gateway.new_array(self.jvm.java.lang.Object, len(items))
        for index, item in enumerate(items):
            array[index] = item
        return array

    def copies(self, array: Java, count: int) -> Java:
        """An array of deep copies. Expressions keep state while they run, so each task needs a copy of its own."""
        clone = self.jvm.org.apache.commons.lang3.SerializationUtils.clone
        return self.array([clone(array) for _ in range(count)])

    def broadcast(self, value: Java) -> Java:
        """A broadcast variable of a Java object."""
        return self._context._jsc.broadcast(value)  # noqa: SLF001

    def unpickle(self, path: str) -> Java:
        """The Java twin of what Python pickled into a file; a dict becomes a HashMap."""
        files, paths = self.jvm.java.nio.file.Files, self.jvm.java.nio.file.Paths
        content = files.readAllBytes(paths.get(path, self._gateway.new_array(self.jvm.java.lang.String, 0)))
        return self.jvm.net.razorvine.pickle.Unpickler().loads(content)

    def constant(self, value: Java, kind: str) -> Java:
        """An expression that gives a Java object."""
        return self._expressions.Literal(value, self._object_type(kind))

    def call(self, target: Java, method: str, gives: str, *arguments: Java) -> Java:
        """An expression that calls a method of what another gives; null when that or an argument is null.

        Never folded into a constant and never moved, since it does not claim to be deterministic.
        """
        kind = self._type(gives)
        none = self._sequence([])
        return self._expressions.objects.Invoke(
            target, method, kind, self._sequence(arguments), none, True, True, False
        )

    def static(self, cls: str, method: str, gives: str, *arguments: Java) -> Java:
        """An expression that calls a static method, likewise."""
        none = self._sequence([])
        nothing = self.jvm.scala.Option.apply(None)
        return self._expressions.objects.StaticInvoke(
            self._class(cls),
            self._type(gives),
            method,
            self._sequence(arguments),
            none,
            True,
            True,
            False,
            nothing,
        )

    def tried(self, expression: Java) -> Java:
        """Null where the expression throws."""
        return self._expressions.TryEval(expression)

    def struct_type(self, expression: Java) -> StructType:
        """The type of a compiled expression that gives a struct."""
        return StructType.fromJson(json.loads(expression.dataType().json()))

    def expression(self, column: Column) -> Java:
        """The expression of a column."""
        return self._columns.expression(column._jc)  # noqa: SLF001

    def column(self, expression: Java) -> Column:
        """The column of an expression."""
        return ClassicColumn(self._columns.column(expression))

    def _sequence(self, items: Sequence[Java]) -> Java:
        collected = self.jvm.java.util.ArrayList()
        for item in items:
            collected.add(item)
        return self.jvm.org.apache.spark.api.python.PythonUtils.toSeq(collected)

    def _type(self, name: str) -> Java:
        """A SQL type, or the type of a Java class where the name has a dot."""
        if "." in name and "<" not in name:
            return self._object_type(name)
        return self.jvm.org.apache.spark.sql.types.DataType.fromDDL(name)

    def _object_type(self, cls: str) -> Java:
        return self.jvm.org.apache.spark.sql.types.ObjectType(self._class(cls))

    def _class(self, name: str) -> Java:
        if name not in self._classes:
            loader = self.jvm.java.lang.Thread.currentThread().getContextClassLoader()
            self._classes[name] = self.jvm.java.lang.Class.forName(name, True, loader)
        return self._classes[name]


def sentence(error: PySparkException) -> str:
    """What Spark says is wrong, in one line without its advice on settings and its plan."""
    text = str(error.getMessage() or error).strip()
    first = text.split("\n\n")[0].split("\n== SQL")[0].split(" SQLSTATE:")[0].split(";\n")[0]
    first = " ".join(first.split()).strip()
    kind = error.getCondition() or ""
    if isinstance(error, AnalysisException) and first.startswith("["):
        first = first.partition("] ")[2]
    return first.removeprefix(f"[{kind}] ") or type(error).__name__
