"""Figures that a query has observed of its rows."""

from typing import Any, Final

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import Observation

from hifi.runtime.errors import Retryable

_WAIT_S: Final = 60.0
"""Spark tells of a query in milliseconds after its end, or never: its queue of events drops some under load."""


def observed(observation: Observation, wait_s: float = _WAIT_S) -> dict[str, Any]:
    """The values by their names, after the end of the query.

    Args:
        observation: of a DataFrame that a query has read.
        wait_s: how long Spark may take to tell, seconds.

    Raises:
        Retryable: it has not told; a repeated query has an observation of its own.
    """
    java, jvm = _java_of(observation)
    wait = jvm.scala.concurrent.duration.Duration.apply(f"{round(wait_s * 1000)} ms")
    try:
        jvm.scala.concurrent.Await.ready(java.future(), wait)
    except Py4JJavaError as error:
        raise Retryable(
            f"Spark has not told within {wait_s:g} s what a query read or wrote; the batch is repeated"
        ) from error
    return observation.get


def _java_of(observation: Observation) -> tuple[Any, Any]:
    """The observation in Java, and Java; `Observation.get` alone waits without limit."""
    return observation._jo, observation._jvm  # noqa: SLF001
