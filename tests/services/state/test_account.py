"""The account of a step, on real Spark: it is complete whatever dies, and a planted loss is found and named."""

import sqlite3
from collections.abc import Collection
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from pyspark.sql import DataFrame, SparkSession
from tests.support.state.stamped_log import EPOCH, PIPE, START_MS, Entry, StampedLog, disordered
from tests.support.state.step_bench import KEEPING_SOURCE, Killed, StepBench, step_pipe

from hifi.record.identity import seq_text
from hifi.record.spark_sql import fingerprint as fingerprint_sql
from hifi.record.step_account import FOLDED, StepAccount, StepStatement, Tally, fingerprint, total
from hifi.spark.catalyst import Catalyst
from hifi_observe.steps.partition_account import EnrichedEvents, PartitionAccount, StepFindingJson
from hifi_state import step_turn
from hifi_state.explanation import UNREAD, EnrichedRecord, StepExplainer, events_of
from hifi_state.fold import event_groups
from hifi_state.fold.judged_events import JudgedEvents
from hifi_state.fold.progress import Progress

TUMBLING = {"tumbling": "10s"}
SLIDING = {"size": "30s", "every": "10s"}
SESSION = {"session": "2s"}
EACH = {"each": {"trailing": "10s"}}
LIMITED_EACH = {**EACH, "limit": 2}
FIRST = {"first": "10s"}
JOIN = KEEPING_SOURCE


def account_of(bench: StepBench) -> StepAccount:
    return Progress.decode(bench.kept).account


def tally_of(entries: list[Entry], pipes: Collection[str]) -> Tally:
    """Of the events of the pipes that the step reads, each copy counted."""
    return total(
        Tally(1, fingerprint(seq_text(EPOCH, entry.number)))
        for entry in entries
        if entry.number is not None and entry.pipe in pipes
    )


def thirds(stamped_log: StampedLog) -> list[dict[int, int]]:
    return [
        {partition: end * third // 3 for partition, end in stamped_log.ends().items()} for third in (1, 2, 3)
    ]


class Observed:
    """What observe finds of a step on a log in memory."""

    def __init__(self, bench: StepBench) -> None:
        self._bench = bench
        self.accounts = {
            partition: PartitionAccount(partition, self._statement())
            for partition in range(len(bench.log.partitions))
        }

    def _statement(self) -> StepStatement:
        return StepStatement.of_record(orjson.loads(self._bench.kept))

    def compare(self) -> list[StepFindingJson]:
        """Compare the record that is on `folds` now; goes on as another instance does each time."""
        findings: list[StepFindingJson] = []
        statement = self._statement()
        for partition, entries in enumerate(self._bench.log.partitions):
            dump = orjson.loads(orjson.dumps(self.accounts[partition].dump()))
            account = self.accounts[partition] = PartitionAccount.load(partition, dump)
            events = EnrichedEvents(statement.pipes)
            for offset in account.unread(statement) or ():
                events.add(offset, entries[offset].record().headers)
            findings += account.compare(statement, events, 0, complete=True)
        return findings


@pytest.mark.parametrize(
    ("point", "window", "is_lost"),
    [
        ("after folds", JOIN, True),
        pytest.param("within the results", FIRST, True, marks=pytest.mark.more),
        pytest.param("within the results", SLIDING, True, marks=pytest.mark.more),
        pytest.param("before folds", LIMITED_EACH, True, marks=pytest.mark.more),
        pytest.param("within the results", JOIN, False, marks=pytest.mark.more),
        pytest.param("before folds", SESSION, False, marks=pytest.mark.more),
        pytest.param("after folds", TUMBLING, True, marks=pytest.mark.more),
        pytest.param("after folds", EACH, True, marks=pytest.mark.more),
        pytest.param("after folds", SLIDING, False, marks=pytest.mark.more),
        pytest.param("before the offset", SESSION, True, marks=pytest.mark.more),
    ],
)
async def test_each_event_is_accounted_for_whatever_dies(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    window: dict[str, Any],
    is_lost: bool,
) -> None:
    monkeypatch.setattr(step_turn, "_MEASURED_APART", 10**9)  # only the first round of a turn measures
    stamped_log = disordered(11, 3, 200, joined=window == JOIN)
    bench = StepBench(spark, stamped_log, step_pipe(window), tmp_path)
    observed = Observed(bench)
    first, *others = thirds(stamped_log)
    await bench.run([first])
    assert not observed.compare()
    bench.kill_at, bench.most_records = point, 90
    with pytest.raises(Killed):
        await bench.run(others)
    assert not observed.compare()
    if is_lost:
        bench.lose_files()
    await bench.run(others)
    assert not observed.compare()
    account = account_of(bench)
    pipes = Progress.decode(bench.kept).pipes
    assert [account.read_of(partition) for partition in range(3)] == [
        tally_of(entries, pipes) for entries in stamped_log.partitions
    ]
    assert account.missing == Tally()
    with closing(bench.open_file(bench.range_folder)) as file:
        assert account.held == file.ending(Progress.decode(bench.kept).emitted_ms)
    verdicts = {verdict for verdicts in account.read.values() for verdict in verdicts}
    assert verdicts >= {FOLDED, "copy", "left-out", "late", "no-key", "replayed"}
    assert account.resulted.events > 20
    if window == TUMBLING:
        assert account.resulted.events == sum(body["flights"] for [body] in bench.results.values())


def test_spark_and_python_make_the_same_fingerprint_of_an_identity(spark: SparkSession) -> None:
    identities = [
        seq_text(epoch, sequence)
        for epoch in (0, 0x1234, 2**64 - 1)
        for sequence in (0, 1, 255, 10**12, 2**63 - 1)
    ]
    identities.append(b"0000000000001234:9999999999999999999")  # 19 digits, above 63 bits
    rows = [(["2", "flights", "1", "1", "1", "1", text.decode()],) for text in identities]
    frame = spark.createDataFrame(rows, "identity array<string>")
    fingerprints = [row[0] for row in frame.selectExpr(fingerprint_sql()).collect()]
    assert fingerprints == list(map(fingerprint, identities))
    assert len(set(fingerprints)) == len(identities)


@pytest.mark.parametrize(
    ("window", "source"),
    [
        (TUMBLING, {"where": "cancelled"}),
        pytest.param(TUMBLING, {"window": SLIDING}, marks=pytest.mark.more),
        pytest.param(LIMITED_EACH, {"window": {**EACH, "limit": 5}}, marks=pytest.mark.more),
    ],
    ids=["where", "window", "limit"],
)
async def test_a_change_of_the_step_begins_the_account_of_its_windows_anew(
    spark: SparkSession, tmp_path: Path, window: dict[str, Any], source: dict[str, Any]
) -> None:
    stamped_log = disordered(12, 2, 200)
    bench = StepBench(spark, stamped_log, step_pipe(window), tmp_path)
    observed = Observed(bench)
    first, *others = thirds(stamped_log)
    await bench.run([first])
    assert not observed.compare()
    bench.declare(step_pipe(**{"window": window, **source}))
    await bench.run(others)
    assert not observed.compare()
    assert account_of(bench).missing == Tally()


def dropped_record(monkeypatch: pytest.MonkeyPatch, offset: int) -> None:
    """A defect: one record is not parsed."""
    parsed = JudgedEvents._parsed

    def lossy(judged: JudgedEvents, records: DataFrame) -> DataFrame:
        return parsed(judged, records.filter(f"not (partition = 1 and offset = {offset})"))

    monkeypatch.setattr(JudgedEvents, "_parsed", lossy)


def dropped_part(monkeypatch: pytest.MonkeyPatch, offset: int) -> None:
    """A defect: an event is judged to count, but is in no part of a window."""
    started = event_groups._started

    def lossy(frame: DataFrame, starts: str) -> DataFrame:
        return started(frame, f"if(partition = 1 and offset = {offset}, array(), {starts})")

    monkeypatch.setattr(event_groups, "_started", lossy)


@pytest.mark.parametrize(
    ("defect", "kind", "window"),
    [
        (dropped_record, "read", TUMBLING),
        (dropped_part, "windows", SLIDING),
        pytest.param(dropped_part, "windows", FIRST, marks=pytest.mark.more),
        pytest.param(dropped_part, "windows", JOIN, marks=pytest.mark.more),
        pytest.param(dropped_record, "read", JOIN, marks=pytest.mark.more),
        pytest.param(dropped_part, "windows", SESSION, marks=pytest.mark.more),
    ],
)
async def test_an_event_that_the_step_loses_is_found_and_explained(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    defect: Any,
    kind: str,
    window: dict[str, Any],
) -> None:
    stamped_log = disordered(13, 2, 200, joined=window == JOIN)
    bench = StepBench(spark, stamped_log, step_pipe(window), tmp_path)
    observed = Observed(bench)
    cuts = thirds(stamped_log)
    entries = stamped_log.partitions[1]
    offset = stamped_log.counted_once(1, range(cuts[0][1], cuts[1][1]))
    await bench.run(cuts[:1])
    assert not observed.compare()
    with monkeypatch.context() as defective:
        defect(defective, offset)
        bench.declare(step_pipe(window))  # plans are made once
        await bench.run(cuts[1:2])
    bench.declare(step_pipe(window))
    findings = observed.compare()
    await bench.run(cuts[2:])
    assert not observed.compare(), "it is told once"
    (finding,) = [finding for finding in findings if finding["suspects"]]
    assert all(finding["kind"] == kind for finding in findings)
    (suspect,) = finding["suspects"]
    assert finding["events"] == 1
    assert (suspect["partition"], suspect["offset"]) == (1, offset)
    assert suspect["event"] == seq_text(EPOCH, entries[offset].number or 0).decode()
    explainer = StepExplainer(Catalyst(spark), "carrier-delays", Progress.decode(bench.kept))
    (event,) = explainer.explain([], [record_of(1, offset, entries[offset])])
    assert (event.verdict, event.event) == (FOLDED, suspect["event"])


async def test_a_row_that_the_file_loses_is_found(spark: SparkSession, tmp_path: Path) -> None:
    stamped_log = disordered(14, 2, 200)
    bench = StepBench(spark, stamped_log, step_pipe(TUMBLING), tmp_path)
    observed = Observed(bench)
    cuts = thirds(stamped_log)
    await bench.run(cuts[:1])
    assert not observed.compare()
    with closing(sqlite3.connect(tmp_path / "carrier-delays.db", isolation_level=None)) as database:
        lost_row = database.execute("select end_ms, key, ending from windows order by end_ms desc").fetchone()
        database.execute("delete from windows where end_ms = ? and key = ?", lost_row[:2])
    await bench.run(cuts[1:])
    (finding,) = observed.compare()
    assert (finding["kind"], finding["events"]) == ("windows", lost_row[2])


def record_of(partition: int, offset: int, entry: Entry) -> EnrichedRecord:
    record = entry.record()
    return EnrichedRecord(partition, offset, record.key, record.value, list(record.headers))


def test_a_record_whose_first_headers_have_no_value_is_no_event() -> None:
    stamped_log = StampedLog(1)
    record = record_of(0, 0, stamped_log.event(0, START_MS, START_MS, {}))
    first, second, *others = record.headers
    valueless: Any = [(name, None) for name, _ in (first, second)]
    odd = [
        record._replace(headers=[valueless[0], second, *others]),
        record._replace(headers=[first, valueless[1], *others]),
        record._replace(headers=[]),
    ]
    assert [event_record for event_record, _ in events_of([PIPE], [*odd, record])] == [record]


@pytest.mark.parametrize("window", [SLIDING, pytest.param(LIMITED_EACH, marks=pytest.mark.more)])
async def test_what_became_of_each_event_is_computed_anew_from_the_log(
    spark: SparkSession, tmp_path: Path, window: dict[str, Any]
) -> None:
    stamped_log = disordered(15, 2, 200)
    bench = StepBench(spark, stamped_log, step_pipe(window), tmp_path)
    cuts = thirds(stamped_log)
    await bench.run(cuts[:2])
    records = [
        record_of(partition, offset, entry)
        for partition, entries in enumerate(stamped_log.partitions)
        for offset, entry in enumerate(entries)
    ]
    explainer = StepExplainer(Catalyst(spark), "carrier-delays", Progress.decode(bench.kept))
    events = explainer.explain([], records)
    refused = {
        (int(event.event.rpartition(":")[2]), event.verdict)
        for event in events
        if event.verdict not in (FOLDED, "copy", "left-out", UNREAD)
    }
    assert refused == bench.letters.keys()
    limited = {"key-limit"} if window == LIMITED_EACH else set()
    assert {reason for _, reason in refused} == {"late", "future", "no-key", "replayed"} | limited
    for event in events:
        assert (event.verdict == UNREAD) == (event.offset >= cuts[1][event.partition])
        if event.verdict == FOLDED and window == SLIDING:
            assert [end - start for start, end in event.windows] == [30_000] * 3
            assert all(start <= event.time_ms < end for start, end in event.windows)
    assert sum(event.verdict == "copy" for event in events) > 3
    middle = cuts[0]
    earlier = [record for record in records if record.offset < middle[record.partition]]
    later = [record for record in records if record.offset >= middle[record.partition]]
    assert explainer.explain(earlier, later) == [
        event for event in events if event.offset >= middle[event.partition]
    ]
