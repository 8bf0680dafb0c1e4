"""Compiles hifi's Java classes, loads them into Spark, and makes their SQL functions known."""

import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from hifi.spark.json_fields import JSON_FIELDS
from hifi.spark.typed_text import WHOLE_NUMBER

_SOURCES: Final = tuple(
    Path(__file__).with_name(f"{name}.java")
    for name in (
        "SqlBudget",
        "BoundedExpression",
        "ExactArithmetic",
        "JsonFields",
        "WholeNumber",
        "PreparedPlan",
    )
)
"""In the order in which one needs the other."""


def load_functions(spark: SparkSession, *, local: bool) -> None:
    """Add the SQL functions to a session, and hifi's classes to its JVM. Classes are compiled once in a JVM.

    Args:
        spark: the session.
        local: tasks run in this JVM, so no executor has to load the classes.
    """
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    if loader.getResource("hifi/BoundedExpression.class") is None:
        jar = _compiled(spark, loader)
        loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())
        if not local:
            spark.sparkContext._jsc.addJar(str(jar))  # noqa: SLF001
    registry = spark._jsparkSession.sessionState().functionRegistry()  # noqa: SLF001
    for name, class_name in ((JSON_FIELDS, "JsonFields"), (WHOLE_NUMBER, "WholeNumber")):
        registry.createOrReplaceTempFunction(name, getattr(jvm.hifi, f"{class_name}$Function")(), "scala_udf")


def _compiled(spark: SparkSession, loader: Any) -> Path:
    """A jar of the classes."""
    jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
    jar = Path(tempfile.mkdtemp(dir=spark.conf.get("spark.local.dir"))) / "hifi-sql.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        parent = loader
        for source in _SOURCES:
            compiler = jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(parent)
            compiler.setTargetVersion(8)  # calls of static methods of interfaces
            compiler.cook(source.read_text())
            for name, code in compiler.getBytecodes().items():
                archive.writestr(f"{name.replace('.', '/')}.class", bytes(code))
            parent = compiler.getClassLoader()
    return jar
