"""The dead letters that the service state writes are those that observe compares, on real Spark."""

from collections.abc import Iterable
from pathlib import Path

import orjson
import pytest
from pyspark.sql import SparkSession
from tests.services.observe.steps.test_partition_account import events
from tests.support.state.stamped_log import disordered
from tests.support.state.step_bench import Killed, StepBench, step_pipe

from hifi.record.fields import fields
from hifi.record.headers import SOURCE, Headers
from hifi.record.step_account import StepStatement
from hifi_observe.steps.partition_account import PartitionAccount, StepFindingJson
from hifi_observe.steps.step_letters import StepLetters
from hifi_state.fold.dead_letters import LetterRecord

PARTITIONS = 2
STEP = "carrier-delays"


class LetterBench(StepBench):
    """Keeps the headers of the letters, by partition."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        limited_pipe = step_pipe({"each": {"trailing": "10s"}, "limit": 2})
        super().__init__(spark, disordered(31, PARTITIONS, 200), limited_pipe, folder)
        self.written: dict[int, list[Headers]] = {partition: [] for partition in range(PARTITIONS)}

    def keep_letters(self, letters: Iterable[LetterRecord]) -> None:
        for letter in letters:
            super().keep_letters([letter])
            self.written[letter.partition].append(letter.record.headers)

    def findings(self) -> list[StepFindingJson]:
        """What observe finds on all partitions."""
        findings: list[StepFindingJson] = []
        statement = StepStatement.of_record(orjson.loads(self.kept))
        for partition, entries in enumerate(self.log.partitions):
            account, letters = PartitionAccount(partition, statement), StepLetters(STEP)
            enriched_events = events({offset: entry.record().headers for offset, entry in enumerate(entries)})
            for headers in self.written[partition]:
                letters.add(headers)
            findings += account.compare(
                statement, enriched_events, 0, complete=True, letters=letters.take(range(len(entries)))
            )
        return findings


@pytest.mark.slow
async def test_every_letter_is_recognized_though_it_is_written_twice_and_one_that_is_missing_is_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    bench = LetterBench(spark, tmp_path)
    ends = bench.log.ends()
    bench.kill_at = "before folds"
    with pytest.raises(Killed):
        await bench.run([ends])
    await bench.run([ends])
    assert {reason for _, reason in bench.letters} == {"late", "future", "no-key", "replayed", "key-limit"}
    assert set(bench.letters.values()) >= {2}
    assert bench.findings() == []
    lost = bench.written[1][0]
    source = fields(lost)[SOURCE]
    bench.written[1] = [headers for headers in bench.written[1] if fields(headers)[SOURCE] != source]
    (finding,) = bench.findings()
    assert (finding["kind"], finding["partition"], finding["events"]) == ("letters", 1, 1)
    assert finding["suspects"][0]["event"].encode() in lost[0][1]
