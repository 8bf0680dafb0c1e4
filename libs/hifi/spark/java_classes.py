"""Compiles hifi's Java classes, loads them into Spark, and makes their SQL functions known."""

import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from hifi.spark.json_fields import JSON_FIELDS, JSON_MATCH
from hifi.spark.typed_text import TYPED_TEXT, WHOLE_NUMBER

_FUNCTIONS: Final = (
    "SqlBudget",
    "BoundedExpression",
    "ExactArithmetic",
    "JsonFields",
    "JsonMatch",
    "WholeNumber",
    "TypedText",
    "PreparedPlan",
)


def load_functions(spark: SparkSession) -> None:
    """Add the SQL functions to a session, and their classes to its JVM."""
    load_classes(spark, *_FUNCTIONS)
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    registry = spark._jsparkSession.sessionState().functionRegistry()  # noqa: SLF001
    functions = (
        (JSON_FIELDS, "JsonFields"),
        (JSON_MATCH, "JsonMatch"),
        (WHOLE_NUMBER, "WholeNumber"),
        (TYPED_TEXT, "TypedText"),
    )
    for name, class_name in functions:
        registry.createOrReplaceTempFunction(name, getattr(jvm.hifi, f"{class_name}$Function")(), "scala_udf")


def load_classes(spark: SparkSession, *names: str) -> None:
    """Add classes to a JVM, and to those of its executors. They are compiled once in a JVM.

    Args:
        spark: a session in it.
        names: in the order in which one needs the other.
    """
    context: Any = spark.sparkContext
    loader = context._jvm.java.lang.Thread.currentThread().getContextClassLoader()  # noqa: SLF001
    if loader.getResource(f"hifi/{names[-1]}.class") is not None:
        return
    jar = _compiled(spark, loader, names)
    loader.addURL(context._jvm.java.io.File(str(jar)).toURI().toURL())  # noqa: SLF001
    if not context._jsc.isLocal():  # noqa: SLF001
        context._jsc.addJar(str(jar))  # noqa: SLF001


def _compiled(spark: SparkSession, loader: Any, names: Sequence[str]) -> Path:
    """A jar of the classes."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    jar = Path(tempfile.mkdtemp(dir=spark.conf.get("spark.local.dir"))) / f"hifi-{names[-1]}.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        parent = loader
        for name in names:
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(parent)
            compiler.setTargetVersion(8)  # calls of static methods of interfaces
            compiler.cook(Path(__file__).with_name(f"{name}.java").read_text())
            for class_name, code in compiler.getBytecodes().items():
                archive.writestr(f"{class_name.replace('.', '/')}.class", bytes(code))
            parent = compiler.getClassLoader()
    return jar
