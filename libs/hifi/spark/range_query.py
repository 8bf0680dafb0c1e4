"""A query over ranges of a Kafka topic that is planned once: a plan costs more than the records of a small range."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from pyspark.serializers import CPickleSerializer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from hifi.spark.java_classes import load_classes

RECORD_COLUMNS: Final = (
    "partition int, offset bigint, key binary, value binary"
    ", headers array<struct<key: string, value: binary>>"
)
"""Columns of a record."""


class RangeQuery:
    """A query, and what it reads; one task reads a whole range."""

    def __init__(
        self,
        spark: SparkSession,
        topic: str,
        client: Mapping[str, str],
        columns: str,
        query: Callable[[DataFrame], DataFrame],
    ) -> None:
        """Plan the query.

        Args:
            spark: session.
            topic: to read.
            client: settings of Kafka's client, with a group.
            columns: `RECORD_COLUMNS`, and further ones of type bigint, whose values each range gives.
            query: makes the query of a DataFrame with these columns.
        """
        load_classes(spark, "RangeRows")
        context: Any = spark.sparkContext
        self._java = context._jvm.hifi.RangeRows  # noqa: SLF001 - as in `catalyst`
        settings = context._jvm.java.util.HashMap()  # noqa: SLF001
        for name, value in client.items():
            settings.put(name, value)
        java_session: Any = spark._jsparkSession  # noqa: SLF001
        schema = java_session.parseDataType(StructType.fromDDL(columns).json())
        rows = self._java(context._jsc.sc(), topic, settings)  # noqa: SLF001
        frame = DataFrame(rows.frame(java_session, schema), spark)
        self._query = query(frame.coalesce(1))._jdf  # noqa: SLF001
        self._serializer: Any = CPickleSerializer()

    def rows(self, partitions: Iterable[Sequence[int | None]], most_bytes: int) -> list[Sequence[Any]] | None:
        """The rows of the query over a range; None: they have too many bytes.

        Args:
            partitions: of each partition its number, the first offset, the offset after the last one, and the values of
                the further columns.
            most_bytes: of the rows, which are in memory several times.
        """
        lines = (
            " ".join("-" if number is None else str(number) for number in numbers) for numbers in partitions
        )
        pickled = bytes(self._java.collect(self._query, "\n".join(lines), most_bytes))
        rows: list[Sequence[Any]] | None = self._serializer.loads(pickled) if pickled else None
        return rows
