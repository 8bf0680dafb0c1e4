"""What state keeps of a folded range: the code that Spark generated, and one consumer of each partition."""

import asyncio
import re
from collections import Counter
from typing import Any

from pyspark.sql import SparkSession
from tests.support.state.kafka_log import written
from tests.support.state.stamped_log import START_MS, disordered
from tests.support.state.step_bench import FLIGHTS, step_pipe

from hifi.pipe.sources.step import StepSource
from hifi.spark.catalyst import Catalyst
from hifi_state.checked_step import checked_declaration
from hifi_state.enriched_ranges import EnrichedRanges
from hifi_state.fold.judged_events import FoldRules
from hifi_state.fold.range_folder import RangeFolder
from hifi_state.settings import StateSettings

PARTITIONS = 2
RANGES = 4
RECORDS = 100
"""Of a range, in each partition."""
FORGOTTEN_WITHIN_S = 60.0
CONSUMER = "org.apache.kafka.clients.consumer.KafkaConsumer"
SOURCE = "org.apache.spark.sql.kafka010.KafkaSourceRDD"
_LINE = re.compile(r"^ *\d+: +(\d+) +\d+ +(\S+)", re.MULTILINE)


def live_objects(spark: SparkSession) -> Counter[str]:
    """Class to the number of its objects in Spark's JVM, after a full garbage collection."""
    context: Any = spark.sparkContext
    jvm = context._jvm

    def array(kind: Any, *items: Any) -> Any:
        java_array = context._gateway.new_array(kind, len(items))
        for index, item in enumerate(items):
            java_array[index] = item
        return java_array

    text = jvm.java.lang.String
    arguments = array(
        jvm.java.lang.Object,
        jvm.javax.management.ObjectName("com.sun.management:type=DiagnosticCommand"),
        "gcClassHistogram",
        array(jvm.java.lang.Object, array(text)),
        array(text, "[Ljava.lang.String;"),
    )
    # By the interface: the class of the server is not open to Py4J.
    methods = jvm.java.lang.Class.forName("javax.management.MBeanServer").getMethods()
    (invoke,) = [method for method in methods if method.getName() == "invoke"]
    histogram = invoke.invoke(jvm.java.lang.management.ManagementFactory.getPlatformMBeanServer(), arguments)
    return Counter({name: int(number) for number, name in _LINE.findall(histogram)})


async def test_a_folded_range_leaves_its_code_and_its_consumers_and_nothing_else_in_spark(
    settings: StateSettings, spark: SparkSession
) -> None:
    stamped_log = disordered(7, PARTITIONS, 2 * RANGES * RECORDS * PARTITIONS)
    await written(stamped_log, settings)
    pipe = step_pipe({"tumbling": "10s"})
    assert isinstance(pipe.source, StepSource)
    catalyst = Catalyst(spark)
    declaration = checked_declaration(catalyst, pipe.source, (FLIGHTS,))
    folder = RangeFolder(catalyst, pipe.pipe, declaration, "1")
    ranges = EnrichedRanges(settings, spark, pipe.pipe)
    context: Any = spark.sparkContext
    consumers_before = (await asyncio.to_thread(live_objects, spark))[CONSUMER]
    metrics = context._jvm.org.apache.spark.metrics.source.CodegenMetrics

    def fold(number: int) -> int:
        """Fold a range; the number of classes that Spark has generated since it started."""
        start = dict.fromkeys(range(PARTITIONS), number * RECORDS)
        end = {partition: offset + RECORDS for partition, offset in start.items()}
        time_ms = START_MS + number
        rules = FoldRules(PARTITIONS, {0: start[0] - 1}, time_ms, time_ms)
        small = ranges.fold(folder, start, end, rules)
        folded = ranges.fold(folder, start, end, rules, keeps_events=True)
        assert folded.rows(None)
        assert sorted(map(repr, small.rows(None))) == sorted(map(repr, folded.rows(None)))
        assert small.summary == folded.summary
        letters = folded.dead_letters(number)
        assert letters is not None
        assert letters.collect()
        folded.release()
        return metrics.METRIC_COMPILATION_TIME().getCount()  # type: ignore[no-any-return]

    classes = [await asyncio.to_thread(fold, number) for number in range(RANGES)]
    assert classes[1] == classes[-1], "the code of a range is that of the range before"
    async with asyncio.timeout(FORGOTTEN_WITHIN_S):
        while (live := await asyncio.to_thread(live_objects, spark))[SOURCE] > 1:
            await asyncio.sleep(0.2)  # Spark forgets in threads of its own, and all but the newest
    assert live[CONSUMER] <= consumers_before + PARTITIONS
