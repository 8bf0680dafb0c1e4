"""A DataFrame whose plan is analysed once and reads any source: most of what a small batch costs is its plan."""

from typing import Any

from pyspark.sql import DataFrame


class PreparedFrame:
    """A plan that reads one source.

    Attributes:
        frame: the DataFrame, which reads no rows.
    """

    def __init__(self, frame: DataFrame) -> None:
        """Keep its analysed plan.

        Args:
            frame: made of one that `Catalyst.empty_frame` made, with any transformations that add no source.
        """
        self.frame = frame
        self._plan: Any = frame._jdf.queryExecution().analyzed()  # noqa: SLF001 - as in `catalyst`

    def of(self, source: DataFrame) -> DataFrame:
        """The DataFrame with the rows of a source, in the session of it.

        Args:
            source: with the columns of the empty frame, in the same order and of the same types.
        """
        session = source.sparkSession
        jvm: Any = session.sparkContext._jvm  # noqa: SLF001
        plan = jvm.hifi.PreparedPlan.reading(self._plan, source._jdf.queryExecution().analyzed())  # noqa: SLF001
        rows = jvm.org.apache.spark.sql.classic.Dataset.ofRows(session._jsparkSession, plan)  # noqa: SLF001
        return DataFrame(rows, session)
