"""The service on a real Kafka: both triggers, changes, restarts, poison records, takeover. No event is ever lost."""

import asyncio
import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from pyspark.sql import SparkSession
from tests.support.enrich.running_instance import (
    PARTITIONS,
    TIMEOUT_S,
    EnrichInstance,
    LiveStream,
    running_enrich,
)
from tests.support.enrich.spark_bench import make_headers, make_pipe
from tests.support.held_pipes import unreadable_record
from tests.support.small_disk import filled, small_disk

from hifi.kafka.group_offsets import GroupOffsets
from hifi.pipe.lookup_problems import problems_of
from hifi.pipe.model import Pipe
from hifi.pipe.revision import deletion_record, pipe_record
from hifi.record.fields import fields
from hifi.record.headers import DETAIL, IN, REASON, SEQ, SERVICE, TO, WATCH
from hifi.record.headers import PIPE as PIPE_FIELD
from hifi.record.heartbeat import heartbeat_record, is_heartbeat
from hifi.record.record import Record
from hifi.spark.spark_session import raise_if_stopped
from hifi_enrich.query import kafka_io, warm_up

pytestmark = pytest.mark.timeout(300)
_WIDE = ", ".join(f"c{number}: int" for number in range(80))
COSTLY = {
    "regex": "rlike(t, 'a*a*a*a*a*a*a*a*b')",
    "replacement": "regexp_replace(t, '(a+)(a+)(a+)(a+)b', 'x')",
    "sequence": "size(sequence(0, n))",
    "aggregate": "aggregate(sequence(n - 900000, n), n, (a, i) -> (a * 31 + i) % 1000007)",
    "repeat": "length(repeat(t, cast(n as int)))",
    "nested": "size(transform(sequence(n - 3000, n), i -> size(transform(sequence(i, i + 3000), j -> i * j))))",
    "flattened": "size(flatten(array_repeat(sequence(n - 100000, n), 10000)))",
    "map": "size(str_to_map(t, 'a*a*a*a*a*a*a*b', ':'))",
    "objects": f"size(from_json(concat('[', repeat(concat('{{}},', left(t, 0)), 5000000), '{{}}]'), "
    f"'array<struct<{_WIDE}>>'))",
    "format": "length(format_string(concat('%', n, 'd'), 1))",
    "padding": "length(rpad(t, cast(n as int), 'x'))",
    "decoded": "length(decode(encode(repeat(t, 10000), 'utf-32'), 'utf-32'))",
    "distance": "levenshtein(repeat(t, 600), repeat(upper(t), 600))",
}
"""Minutes or gigabytes, each by another way."""
PIPE = make_pipe("p", [("large", "n >= 10"), "all"], fields={"n": "int"}, derive={"double": "n * 2"})


def reason(record: Any) -> str | None:
    value = dict(record.headers).get(REASON)
    return value.decode() if value is not None else None


def numbered(numbers: Sequence[int]) -> list[bytes]:
    return [b'{"n":%d}' % number for number in numbers]


def restarts(cause: str) -> float:
    return REGISTRY.get_sample_value("hifi_enrich_query_restarts_total", {"cause": cause}) or 0


@pytest.mark.parametrize(
    ("trigger", "tasks"),
    [("micro-batch", 2), pytest.param("micro-batch", 1, marks=pytest.mark.more), ("real-time", 2)],
)
async def test_events_pass_once_in_order_with_key_headers_and_partition(
    kafka: str, spark: SparkSession, tmp_path: Path, trigger: str, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_io, "max_tasks", lambda: tasks)
    watch = [{"field": "double", "bounds": [10, 30]}]
    watched_data = PIPE.model_dump(mode="json", by_alias=True, exclude_defaults=True) | {"watch": watch}
    stream = await LiveStream(kafka).create(Pipe.model_validate(watched_data))
    async with running_enrich(stream, spark, tmp_path, enrich_trigger=trigger) as instance:
        await instance.until_state("running")
        stray_records = [(0, Record(None, b"\xff", [])), (1, Record(b"", None, [("x", b"")]))]
        heartbeat = heartbeat_record("p", 1_800_000_000_000_000, 5, 1_800_000_000_000)
        await stream.append(stream.topics.normalized, [*stray_records, (1, heartbeat)])
        numbers = [number for _ in range(5) for number in await stream.send(*numbered(range(20)))]
        outcomes = await stream.outcomes([*numbers, -1])
        await stream.caught_up()
    assert [reason(record) for record in outcomes.pop(-1)] == ["not-an-event", "not-an-event"]
    for number, records in outcomes.items():
        [record] = records
        assert record.value == b'{"n":%d,"double":%d}' % (number % 20, number % 20 * 2)
        assert (record.key, record.partition) == (b"k%d" % number, number % PARTITIONS)
        input_headers = make_headers("p", 0, number)
        assert [record.headers[0], *record.headers[2:]] == [input_headers[0], *input_headers[2:]]
        assert fields(record.headers)[TO] == (b"large,all" if number % 20 >= 10 else b"all")
        bucket = fields(record.headers)[WATCH].partition(b":")[2]
        assert bucket == (b"0" if number % 20 < 5 else b"1" if number % 20 < 15 else b"2")
        stamp_ms = int(fields(record.headers)[IN]) / 1000
        assert stamp_ms <= record.timestamp + 1
    for partition in range(PARTITIONS):
        records = [
            record for record in await stream.read(stream.topics.enriched) if record.partition == partition
        ]
        order = [int(record.key[1:]) for record in records if record.key is not None]
        assert order == sorted(order)
        beats = [record.headers[0] for record in records if is_heartbeat(record.headers)]
        assert beats == [heartbeat.headers[0]] * partition


@pytest.mark.more
async def test_a_udf_with_the_real_time_trigger_affects_its_own_pipe_only(
    kafka: str, spark: SparkSession, tmp_path: Path
) -> None:
    udf = {"function": "udfs:double", "args": ["n"], "returns": {"twice": "int"}}
    stream = await LiveStream(kafka).create(PIPE, make_pipe("u", fields={"n": "int"}, udf=udf))
    async with running_enrich(stream, spark, tmp_path, enrich_trigger="real-time") as instance:
        await instance.until_state("running")
        [refused_number, passed_number] = [
            *await stream.send(b'{"n":1}', pipe="u"),
            *await stream.send(b'{"n":1}'),
        ]
        outcomes = await stream.outcomes([refused_number, passed_number])
    assert (reason(outcomes[refused_number][0]), reason(outcomes[passed_number][0])) == ("pipe-broken", None)


async def test_the_warm_up_runs_events_of_the_pipes_in_force_with_their_fields(
    kafka: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm_up, "MAX_S", warm_up.WARM_UP_TIMEOUT_S)  # a slow machine finishes a batch, too
    stream = await LiveStream(kafka).create(PIPE, make_pipe("q", derive={"one": "1"}))
    async with running_enrich(stream, spark, tmp_path) as instance:
        await instance.until_state("running")
    fields_by_pipe: dict[str, set[str]] = {}
    for record in await stream.read(stream.topics.enrich_warm_up):
        pipe = fields(record.headers)[PIPE_FIELD].decode()
        fields_by_pipe.setdefault(pipe, set()).update(json.loads(record.value))
    assert fields_by_pipe == {"p": {"n", "padding", "double"}, "q": {"padding", "one"}}
    assert not await stream.read(stream.topics.enriched) + await stream.read(stream.topics.dead_letter)


async def test_the_check_of_spark_writes_a_record_with_the_plan_and_leaves_no_trace_in_the_stream(
    kafka: str, spark: SparkSession, tmp_path: Path
) -> None:
    """As the search for a poison record does it, beside a running query. The pipes' functions are not called."""
    udf = {"function": "udfs:double", "args": ["n"], "returns": {"twice": "int"}}
    stream = await LiveStream(kafka).create(PIPE, make_pipe("u", fields={"n": "int"}, udf=udf))
    async with running_enrich(stream, spark, tmp_path) as instance:
        await instance.until_state("running")
        records_before = len(await stream.read(stream.topics.enrich_warm_up))
        await instance.engine.check_spark(TIMEOUT_S)
        records = await stream.read(stream.topics.enrich_warm_up)
        raise_if_stopped(spark)
    assert len(records) == records_before + 1
    [checked_record] = [record for record in records if record.value == b"0"]
    assert reason(checked_record) == "not-an-event"
    assert not await stream.read(stream.topics.enriched) + await stream.read(stream.topics.dead_letter)


@pytest.mark.more
async def test_a_pipe_that_ends_the_query_of_the_warm_up_does_not_hold_up_the_start(
    kafka: str, spark: SparkSession, tmp_path: Path
) -> None:
    udf = {"function": "udfs:exit_unless_real", "args": ["n", "kind"], "returns": {"twice": "int"}}
    stream = await LiveStream(kafka).create(make_pipe("p", fields={"n": "int", "kind": "string"}, udf=udf))
    async with running_enrich(stream, spark, tmp_path) as instance:
        await instance.until_state("running")
        [number] = await stream.send(b'{"n":2,"kind":"real"}')
        outcomes = await stream.outcomes([number])
    assert json.loads(outcomes[number][0].value) == {"n": 2, "kind": "real", "twice": 4}


async def test_a_udf_that_hangs_or_takes_too_much_memory_costs_its_own_events_only(
    kafka: str, spark: SparkSession, tmp_path: Path
) -> None:
    def with_udf(name: str, function: str) -> Pipe:
        udf = {"function": f"udfs:{function}", "args": ["n", "kind"], "returns": {"twice": "int"}}
        return make_pipe(name, fields={"n": "int", "kind": "string"}, udf=udf)

    hanging_pipe, large_pipe = with_udf("hangs", "hang_unless_real"), with_udf("big", "fill_memory")
    stream = await LiveStream(kafka).create(PIPE, hanging_pipe, large_pipe)
    async with running_enrich(stream, spark, tmp_path, enrich_udf_deadline_s=1) as instance:
        await instance.until_state("running")
        good_numbers = await stream.send(*numbered(range(10)), version=stream.version)
        bodies = [b'{"n":%d,"kind":"%s"}' % (n, b"hangs" if n == 3 else b"real") for n in range(8)]
        slow_numbers = await stream.send(*bodies, pipe="hangs", version=stream.version)
        filling_numbers = await stream.send(
            b'{"n":1,"kind":"big"}', b'{"n":2,"kind":"real"}', pipe="big", version=stream.version
        )
        outcomes = await stream.outcomes([*good_numbers, *slow_numbers, *filling_numbers])
    dead_numbers = {
        number for number, records in outcomes.items() if records[0].topic == stream.topics.dead_letter
    }
    assert dead_numbers == {slow_numbers[3], filling_numbers[0]}
    assert b"longer than 1 s" in fields(outcomes[slow_numbers[3]][0].headers)[DETAIL]
    assert b"MemoryError" in fields(outcomes[filling_numbers[0]][0].headers)[DETAIL]
    assert {len(records) for records in outcomes.values()} == {1}


@pytest.mark.more
async def test_a_batch_that_does_not_end_is_stopped_and_started_again(
    kafka: str, spark: SparkSession, tmp_path: Path
) -> None:
    udf = {"function": "udfs:hang_once", "args": ["n", "folder"], "returns": {"twice": "int"}}
    stream = await LiveStream(kafka).create(make_pipe("p", fields={"n": "int", "folder": "string"}, udf=udf))
    async with running_enrich(stream, spark, tmp_path, enrich_stall_s=10) as instance:
        await instance.until_state("running")
        restarts_before = restarts("stalled")
        [number] = await stream.send(json.dumps({"n": 4, "folder": str(tmp_path)}).encode())
        outcomes = await stream.outcomes([number])
    assert restarts("stalled") == restarts_before + 1
    assert (tmp_path / "called").is_dir()
    assert [json.loads(record.value)["twice"] for record in outcomes[number]] == [8]


@pytest.mark.more
@pytest.mark.parametrize("trigger", ["micro-batch", "real-time"])
async def test_sql_that_would_run_for_minutes_costs_its_own_events_and_delays_no_other_pipe(
    kafka: str, spark: SparkSession, tmp_path: Path, trigger: str
) -> None:
    # Pipes are quarantined in the whole JVM, so those of each trigger have other names.
    names = {kind: f"{kind}-{trigger}" for kind in COSTLY}
    slow_pipes = [
        make_pipe(name, fields={"t": "string", "n": "bigint"}, derive={"r": COSTLY[kind]})
        for kind, name in names.items()
    ]
    stream = await LiveStream(kafka).create(PIPE, *slow_pipes)
    hostile_data = b'{"t":"%s","n":1000000000}' % (b"a" * 5_000)
    undisturbed_numbers, neighbour_numbers = list[int](), list[int]()
    costly_numbers: dict[str, list[int]] = {kind: [] for kind in COSTLY}
    restarts_before = restarts("stalled")
    async with running_enrich(
        stream, spark, tmp_path, enrich_trigger=trigger, enrich_sql_cpu_s=0.2
    ) as instance:
        await instance.until_state("running")
        for _ in range(60):
            undisturbed_numbers += await stream.send(*numbered(range(2)))
            await asyncio.sleep(0.1)
        for round_number in range(4):
            for kind in COSTLY:
                costly_numbers[kind] += await stream.send(hostile_data, pipe=names[kind], version=1)
                for _ in range(3):
                    neighbour_numbers += await stream.send(*numbered(range(2)))
                    await asyncio.sleep(0.1)
            if round_number == 0:  # so that a slow machine has no batch in which a pipe's events come again
                await stream.outcomes([*itertools.chain(*costly_numbers.values())])
        outcomes = await stream.outcomes(
            [*undisturbed_numbers, *neighbour_numbers, *itertools.chain(*costly_numbers.values())]
        )
    # Events that a batch had when the pipe was quarantined come again with the new plan.
    quarantine_text = "quarantined: 3 events"
    bounds = (
        "takes more than 0.2 s of CPU time for an event",
        "needs more than 64 MB of memory for an event",
    )
    for kind, numbers in costly_numbers.items():
        assert [reason(outcomes[number][0]) for number in numbers] == ["sql-budget"] * 4, kind
        first_detail, *further_details, last_detail = [
            dict(outcomes[number][0].headers)[DETAIL].decode() for number in numbers
        ]
        assert first_detail.endswith(bounds), (kind, first_detail)
        assert all(
            detail.endswith(bounds) or detail.startswith(quarantine_text) for detail in further_details
        ), (
            kind,
            further_details,
        )
        assert last_detail.startswith(quarantine_text), (kind, last_detail)
    sent_ms = {
        int(fields(record.headers)[SEQ].partition(b":")[2]): record.timestamp
        for record in await stream.read(stream.topics.normalized)
    }
    assert {reason(outcomes[number][0]) for number in (*undisturbed_numbers, *neighbour_numbers)} == {None}
    p95_ms = [
        sorted(outcomes[number][0].timestamp - sent_ms[number] for number in numbers)[
            int(len(numbers) * 0.95)
        ]
        for numbers in (undisturbed_numbers, neighbour_numbers)
    ]
    print(f"p95 undisturbed and beside, ms: {p95_ms}")
    assert p95_ms[1] <= 2 * p95_ms[0] + 300
    assert restarts("stalled") == restarts_before


async def test_udfs_do_not_see_the_variables_of_the_service(
    kafka: str, spark: SparkSession, tmp_path: Path
) -> None:
    udf = {"function": "udfs:sees_secret", "args": ["n"], "returns": {"seen": "boolean"}}
    stream = await LiveStream(kafka).create(make_pipe("p", fields={"n": "int"}, udf=udf))
    async with running_enrich(stream, spark, tmp_path) as instance:
        await instance.until_state("running")
        [number] = await stream.send(b'{"n":4}')
        outcomes = await stream.outcomes([number])
    assert os.environ["PLANTED_SECRET"]
    assert [json.loads(record.value)["seen"] for record in outcomes[number]] == [False]


@pytest.mark.more
async def test_a_standby_warms_up_again_when_the_plan_has_changed_and_stays_ready_to_take_over(
    kafka: str, spark: SparkSession, tmp_path: Path
) -> None:
    stream = await LiveStream(kafka).create(PIPE)
    first_instance, second_instance = (
        EnrichInstance(stream, spark, tmp_path, name) for name in ("first", "second")
    )
    await first_instance.start()
    await first_instance.until_state("running")
    await second_instance.start()
    await second_instance.until_state("standby")
    version = await stream.publish(
        pipe_record(make_pipe("p", fields={"n": "int"}, derive={"triple": "n * 3"}))
    )
    async with asyncio.timeout(TIMEOUT_S):
        while b'"triple":' not in b"".join(
            record.value for record in await stream.read(stream.topics.enrich_warm_up)
        ):
            await asyncio.sleep(0.1)
    await first_instance.stop()  # in the middle of the warm-up
    [number] = await stream.send(b'{"n":1}', version=version)
    outcomes = await stream.outcomes([number])
    await second_instance.stop()
    assert [record.value for record in outcomes[number]] == [b'{"n":1,"triple":3}']


@pytest.mark.more
async def test_auto_changes_the_trigger_while_a_pipe_has_a_udf_and_loses_nothing(
    kafka: str, spark: SparkSession, tmp_path: Path
) -> None:
    udf = {"function": "udfs:double", "args": ["n"], "returns": {"twice": "int"}}
    stream = await LiveStream(kafka).create(PIPE)
    numbers: list[int] = []
    async with running_enrich(stream, spark, tmp_path, enrich_trigger="auto") as instance:

        async def runs_with(trigger: str) -> None:
            """Events come in, before and after a query with this trigger runs; all of them get an outcome."""
            async with asyncio.timeout(TIMEOUT_S):
                while running_triggers(spark) != [trigger]:
                    numbers.extend(await stream.send(*numbered(range(10)), version=stream.version))
            numbers.extend(await stream.send(*numbered(range(10)), version=stream.version))
            await stream.outcomes(numbers)

        await instance.until_state("running")
        await runs_with("RealTimeTrigger")
        version = await stream.publish(pipe_record(make_pipe("u", fields={"n": "int"}, udf=udf)))
        udf_numbers = await stream.send(*numbered(range(10)), pipe="u", version=version)
        await runs_with("ProcessingTimeTrigger")
        udf_outcomes = await stream.outcomes(udf_numbers)
        await stream.publish(deletion_record("u"))
        await runs_with("RealTimeTrigger")
        outcomes = await stream.outcomes(numbers)
    for value, number in enumerate(udf_numbers):
        assert json.loads(udf_outcomes[number][0].value) == {"n": value, "twice": 2 * value}
    assert {reason(record) for number in numbers for record in outcomes[number]} == {None}
    for partition in range(PARTITIONS):
        first_values = list(
            dict.fromkeys(
                int(record.key[1:])
                for record in await stream.read(stream.topics.enriched)
                if record.partition == partition
            )
        )
        assert first_values == sorted(first_values)


def running_triggers(spark: SparkSession) -> list[str]:
    """Java class of the trigger of each running query."""
    queries: list[Any] = spark.streams.active
    return [query._jsq.streamingQuery().trigger().getClass().getSimpleName() for query in queries]


async def test_a_restart_continues_where_it_stopped_and_the_trigger_can_change(
    kafka: str, spark: SparkSession, tmp_path: Path
) -> None:
    stream = await LiveStream(kafka).create(PIPE)
    numbers: list[int] = []
    for index, trigger in enumerate(["micro-batch", "real-time", "micro-batch"]):
        numbers += await stream.send(*numbered(range(30)))  # before the start
        async with running_enrich(stream, spark, tmp_path, f"i{index}", enrich_trigger=trigger) as instance:
            await instance.until_state("running")
            numbers += await stream.send(*numbered(range(30)))
            await stream.outcomes(numbers)
            await stream.caught_up()
    outcomes = await stream.outcomes(numbers)
    assert {len(records) for records in outcomes.values()} == {1}


async def test_a_changed_deleted_and_new_pipe_take_effect_without_losing_an_event(
    kafka: str, spark: SparkSession, tmp_path: Path
) -> None:
    # In real time a batch that the deletion cuts short is repeated, and what it had written becomes dead letters, too.
    stream = await LiveStream(kafka).create(PIPE)
    async with running_enrich(stream, spark, tmp_path, enrich_trigger="micro-batch") as instance:
        await instance.until_state("running")
        old_numbers = await stream.send(*numbered(range(10)), version=1)
        version = await stream.publish(
            pipe_record(make_pipe("p", fields={"n": "int"}, derive={"triple": "n * 3"})),
            pipe_record(make_pipe("q")),
        )
        changed_numbers = await stream.send(*numbered(range(10)), version=version)
        other_numbers = await stream.send(b"anything", pipe="q", version=version)
        await stream.outcomes([*old_numbers, *changed_numbers, *other_numbers])
        version = await stream.publish(deletion_record("p"))
        await instance.until(lambda: instance.engine.pipes_offset == version)
        deleted_numbers = await stream.send(b'{"n":1}', version=version - 1)
        outcomes = await stream.outcomes([*old_numbers, *changed_numbers, *other_numbers, *deleted_numbers])
    assert {
        json.loads(record.value).get("triple") is None
        for number in old_numbers
        for record in outcomes[number]
    } <= {
        True,
        False,
    }
    assert all(
        json.loads(record.value)["triple"] == json.loads(record.value)["n"] * 3
        for number in changed_numbers
        for record in outcomes[number]
    )
    assert outcomes[other_numbers[0]][0].value == b"anything"
    assert reason(outcomes[deleted_numbers[0]][0]) == "pipe-deleted"


async def test_events_of_a_held_pipe_are_dead_letters_until_its_declaration_can_be_read(
    kafka: str, spark: SparkSession, tmp_path: Path
) -> None:
    stream = await LiveStream(kafka).create(make_pipe("q"))
    await stream.publish(unreadable_record(PIPE))
    async with running_enrich(stream, spark, tmp_path, enrich_trigger="micro-batch") as instance:
        await instance.until_state("running")
        [held_number] = await stream.send(b'{"n":1}', version=stream.version)
        [other_number] = await stream.send(b"{}", pipe="q", version=stream.version)
        outcomes = await stream.outcomes([held_number, other_number])
        assert [reason(outcomes[number][0]) for number in (held_number, other_number)] == [
            "pipe-unreadable",
            None,
        ]
        assert "the pipe is held" in dict(outcomes[held_number][0].headers)[DETAIL].decode()
        version = await stream.publish(pipe_record(PIPE, 2))
        [passed_number] = await stream.send(b'{"n":1}', version=version)
        assert (await stream.outcomes([held_number, other_number, passed_number]))[passed_number][
            0
        ].value == b'{"n":1,"double":2}'
        version = await stream.publish(unreadable_record(PIPE, 3))
        await instance.until(lambda: instance.engine.pipes_offset == version)
        [held_number] = await stream.send(b'{"n":1}', version=version - 1)
        assert reason((await stream.outcomes([held_number]))[held_number][0]) == "pipe-unreadable"


# Faster than the others: the kill, which leaves the least behind.
@pytest.mark.parametrize(
    "interruption",
    [
        "kill",
        *(
            pytest.param(name, marks=pytest.mark.more)
            for name in ("changed-plan", "needs-the-new-plan", "stop")
        ),
    ],
)
async def test_an_interrupted_real_time_batch_is_not_repeated_where_its_output_exists(
    kafka: str, spark: SparkSession, tmp_path: Path, interruption: str
) -> None:
    """This holds also for a pipe that was deleted meanwhile: its events would become dead letters."""
    stream = await LiveStream(kafka).create(PIPE)
    leader, standby = (
        EnrichInstance(stream, spark, tmp_path, name, enrich_trigger="real-time", enrich_batch_s=60)
        for name in ("one", "two")
    )
    await leader.start()
    await leader.until_state("running")
    first_runs = [query.runId for query in spark.streams.active]
    numbers = await stream.send(*numbered(range(20)))
    await stream.outcomes(numbers)
    if interruption in ("kill", "stop"):
        await getattr(leader, interruption)()
    version = await stream.publish(deletion_record("p"), pipe_record(make_pipe("q")))
    if interruption in ("kill", "stop"):
        await standby.start()
    elif interruption == "changed-plan":
        await leader.until(lambda: [query.runId for query in spark.streams.active] not in ([], first_runs))
    [other_number] = await stream.send(b"{}", pipe="q", version=version)
    outcomes = await stream.outcomes([*numbers, other_number])
    await (standby if interruption in ("kill", "stop") else leader).stop()
    assert {reason(record) for records in outcomes.values() for record in records} == {None}
    assert {len(records) for records in outcomes.values()} == {1}


async def test_an_event_that_is_ahead_of_its_pipe_waits_for_it(
    kafka: str, spark: SparkSession, tmp_path: Path
) -> None:
    stream = await LiveStream(kafka).create(PIPE)
    async with running_enrich(stream, spark, tmp_path) as instance:
        await instance.until_state("running")
        [early_number] = await stream.send(b"{}", pipe="late", version=stream.version + 1)
        await instance.until(
            lambda: instance.registry.offset < stream.version + 1 and not spark.streams.active
        )
        assert await stream.read(stream.topics.enriched) == await stream.read(stream.topics.dead_letter) == []
        await stream.publish(pipe_record(make_pipe("late", derive={"x": "1"})))
        outcomes = await stream.outcomes([early_number])
        assert outcomes[early_number][0].value == b'{"x":1}'


@pytest.mark.more
async def test_a_pipe_whose_lookup_is_not_allowed_is_broken_and_does_not_hold_up_the_start(
    kafka: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "allowed").mkdir()
    (tmp_path / "codes.csv").write_text("code,name\nx,X\n")
    monkeypatch.setenv("HIFI_PIPES_LOOKUP_FOLDERS", str(tmp_path / "allowed"))
    lookup = {"file": str(tmp_path / "codes.csv"), "key": {"c": "code"}, "fields": {"name": "name"}}
    refused_pipe = make_pipe("q", fields={"c": "string"}, lookups={"names": lookup})
    stream = await LiveStream(kafka).create(PIPE, refused_pipe)
    async with running_enrich(stream, spark, tmp_path, enrich_batch_s=5):
        good_numbers = await stream.send(*numbered(range(2)))
        bad_numbers = await stream.send(b'{"c":"x"}', pipe="q")
        outcomes = await stream.outcomes([*good_numbers, *bad_numbers])
    assert [reason(outcomes[number][0]) for number in good_numbers] == [None, None]
    assert reason(outcomes[bad_numbers[0]][0]) == "pipe-broken"


async def test_the_start_waits_for_a_missing_lookup_and_a_changed_one_takes_effect(
    kafka: str, spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "names.csv"
    lookup = {"file": str(file), "key": {"c": "code"}, "fields": {"name": "name"}, "refresh": 0.2}
    stream = await LiveStream(kafka).create(make_pipe("p", fields={"c": "string"}, lookups={"names": lookup}))
    async with running_enrich(stream, spark, tmp_path) as instance:
        await instance.until_state("waiting")
        assert "names.csv does not exist" in instance.waiting
        assert not instance.service.health.ready
        file.write_text("code,name\nA,Anna\n")
        await instance.until_state("running")
        first_numbers = await stream.send(b'{"c":"A"}')
        assert (await stream.outcomes(first_numbers))[first_numbers[0]][0].value == b'{"c":"A","name":"Anna"}'
        file.write_text("code,name\nA,Ada\n")
        await instance.until(
            lambda: "Ada" in str([table.rows for table in instance.tables.current().values()])
        )
        value = b""
        while b"Ada" not in value:
            [number] = await stream.send(b'{"c":"A"}')
            value = (await stream.outcomes([number]))[number][0].value
        file.write_text("broken")
        last_numbers = await stream.send(b'{"c":"A"}')
        assert (await stream.outcomes(last_numbers))[last_numbers[0]][0].value == b'{"c":"A","name":"Ada"}'
        await instance.until(lambda: "p/names" in instance.tables.problems)
        problems = dict(instance.tables.problems)
        async with asyncio.timeout(TIMEOUT_S):  # without further events
            while problems_of((await stream.notes()).values()) != problems:
                await asyncio.sleep(0.1)
        file.write_text("code,name\nA,Ada\n")
        async with asyncio.timeout(TIMEOUT_S):
            while problems_of((await stream.notes()).values()):
                await asyncio.sleep(0.1)


@pytest.mark.more
async def test_the_start_waits_for_a_missing_lookup_for_a_time_and_then_serves_the_other_pipes(
    kafka: str, spark: SparkSession, tmp_path: Path
) -> None:
    file = tmp_path / "names.csv"
    lookup = {"file": str(file), "key": {"c": "code"}, "fields": {"name": "name"}}
    stream = await LiveStream(kafka).create(
        PIPE, make_pipe("q", fields={"c": "string"}, lookups={"names": lookup})
    )
    good_numbers = await stream.send(*numbered(range(2)))
    early_numbers = await stream.send(b'{"c":"A"}', pipe="q")
    async with running_enrich(stream, spark, tmp_path, enrich_lookup_s=3) as instance:
        await instance.until_state("waiting")
        outcomes = await stream.outcomes([*good_numbers, *early_numbers])
        assert [reason(outcomes[number][0]) for number in good_numbers] == [None, None]
        assert reason(outcomes[early_numbers[0]][0]) == "pipe-broken"
        file.write_text("code,name\nA,Anna\n")
        value = b""
        while b"Anna" not in value:
            [number] = await stream.send(b'{"c":"A"}', pipe="q")
            value = (await stream.outcomes([number]))[number][0].value


@pytest.mark.more  # faster: full disks of object folders, tests/connectors/objects/destination
async def test_while_the_disk_of_the_checkpoint_is_full_events_wait_and_none_is_a_dead_letter(
    kafka: str, spark: SparkSession, tmp_path: Path
) -> None:
    stream = await LiveStream(kafka).create(make_pipe("p", derive={"x": "1"}))
    with small_disk(tmp_path / "small", "2m") as disk:
        async with running_enrich(stream, spark, disk) as instance:
            await stream.outcomes(await stream.send(b'{"n":1}'))
            with filled(disk):
                numbers = await stream.send(*[b'{"n":2}'] * 10)
                await instance.until_state("waiting")
            outcomes = await stream.outcomes(numbers)
            assert {outcomes[number][0].value for number in numbers} == {b'{"n":2,"x":1}'}
            await instance.until_state("running")


async def test_an_event_on_which_sql_nests_too_deeply_is_a_dead_letter_and_its_neighbours_pass(
    kafka: str, spark: SparkSession, tmp_path: Path
) -> None:
    """A stack overflow ends only the evaluation of this event; the search for a poison record is not needed."""
    stream = await LiveStream(kafka).create(
        make_pipe("p", fields={"s": "string"}, derive={"m": "s rlike '^(a|b)*c'"})
    )
    poison = b'{"s":"%s"}' % (b"ab" * 400_000)
    numbers = await stream.send(*[b'{"s":"abc"}'] * 12, poison, *[b'{"s":"x"}'] * 7)
    async with running_enrich(stream, spark, tmp_path) as instance:
        await stream.outcomes(numbers)
        await instance.until_state("running")
        numbers += await stream.send(b'{"s":"c"}')
        outcomes = await stream.outcomes(numbers)
    reasons = {
        number: reason(record) for number, records in outcomes.items() for record in records if reason(record)
    }
    assert reasons == {12: "sql-failed"}
    assert outcomes[12][0].value == poison
    assert fields(outcomes[12][0].headers)[SERVICE] == b"enrich"
    assert outcomes[11][0].value == b'{"s":"abc","m":true}'
    assert await stream.read(stream.topics.dead_letter) == outcomes[12]


@pytest.mark.more
async def test_records_deleted_by_retention_are_skipped_and_the_rest_passes(
    kafka: str, spark: SparkSession, tmp_path: Path
) -> None:
    stream = await LiveStream(kafka).create(PIPE)
    numbers = await stream.send(*numbered(range(20)))
    async with GroupOffsets(
        kafka, "test", stream.topics.group("enrich"), stream.topics.normalized, PARTITIONS
    ) as offsets:
        await offsets.commit({0: 2, 1: 4}, {1: "a note"})
        start = await offsets.start()
        assert (start.offsets, start.notes) == ({0: 2, 1: 4}, {1: "a note"})
    await delete_before(stream, {0: 6})
    async with running_enrich(stream, spark, tmp_path) as instance:
        await instance.until_state("running")
        remaining = [number for number in numbers if number // 2 >= (6 if number % 2 == 0 else 4)]
        outcomes = await stream.outcomes(remaining)
    assert sorted(outcomes) == remaining


async def delete_before(stream: LiveStream, offsets: dict[int, int]) -> None:
    from aiokafka import TopicPartition
    from aiokafka.admin import AIOKafkaAdminClient
    from aiokafka.admin.records_to_delete import RecordsToDelete

    admin = AIOKafkaAdminClient(bootstrap_servers=stream.kafka)
    await admin.start()
    deletions = {
        TopicPartition(stream.topics.normalized, partition): RecordsToDelete(before_offset=offset)
        for partition, offset in offsets.items()
    }
    await admin.delete_records(deletions)
    await admin.close()


@pytest.mark.parametrize("ending", ["kill", pytest.param("stop", marks=pytest.mark.more)])
async def test_a_standby_takes_over_and_nothing_is_lost(
    kafka: str, spark: SparkSession, tmp_path: Path, ending: str
) -> None:
    stream = await LiveStream(kafka).create(PIPE)
    first_instance, second_instance = (
        EnrichInstance(stream, spark, tmp_path, name) for name in ("first", "second")
    )
    await first_instance.start()
    await first_instance.until_state("running")
    await second_instance.start()
    await second_instance.until_state("standby")
    assert first_instance.state == "running"
    numbers = await stream.send(*numbered(range(20)))
    await stream.outcomes(numbers)
    numbers += await stream.send(*numbered(range(20)))
    await getattr(first_instance, ending)()
    numbers += await stream.send(*numbered(range(20)))
    await second_instance.until_state("running")
    outcomes = await stream.outcomes(numbers)
    await second_instance.stop()
    assert sorted(outcomes) == numbers
    if ending == "stop":
        assert {len(records) for records in outcomes.values()} == {1}
