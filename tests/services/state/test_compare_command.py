"""`hifi step compare` on a real Kafka, with a service that computes the step."""

import asyncio
import time
from collections import Counter
from pathlib import Path

import pytest
from tests.services.state.test_planted_loss import command_json
from tests.services.state.test_state import TAKEN_OVER, WINDOW, StateStream, complete_log, expected, halves
from tests.support.state.stamped_log import OTHER
from tests.support.state.step_bench import FIELDS, FLIGHTS, step_pipe, time_ms
from typer.testing import CliRunner

from hifi.control.pipe_yaml import pipe_yaml
from hifi.control.principals.principal_store import audit_entries
from hifi.kafka.admin import create_topics
from hifi.kafka.producer import Producer
from hifi.kafka.topics import principal_topics
from hifi.pipe.model import Pipe
from hifi.pipe.sources.timestamps import rfc3339
from hifi.record.record import Record
from hifi_cli.app import command_line
from hifi_cli.commands.step import _print_comparison
from hifi_state.comparison import Change, ResultDifference, StepDifferences
from hifi_state.fold.progress import Progress

SIZE_MS = 20_000
ALL = "2000-01-01T00:00:00Z"


def arguments_of(stream: StateStream, pipe: Pipe, since: str) -> list[str]:
    """Compare a pipe whose file is in the folder of the stream."""
    folder = stream.folder / "pipes"
    folder.mkdir(exist_ok=True)
    file = folder / "step.yaml"
    file.write_text(pipe_yaml(pipe))
    place = ("--kafka", stream.kafka, "--stream", stream.topics.stream)
    return ["step", "compare", str(file), "--since", since, *place]


@pytest.mark.more
@pytest.mark.timeout(900)
async def test_the_results_that_are_compared_are_those_of_the_service(kafka: str, tmp_path: Path) -> None:
    stream = StateStream(kafka, tmp_path)
    await stream.create()
    control = principal_topics(stream.topics.stream)
    await create_topics(kafka, control, partitions=1, replication=1)
    stamped_log = complete_log()
    oracle = expected(stamped_log)
    service = stream.start()
    try:
        await service.until_logged(TAKEN_OVER)
        parts = halves(stamped_log)
        await stream.enrich(parts[0])
        await stream.until_results(5)
        middle = rfc3339(round(time.time() * 1000)).decode()
        await stream.enrich(parts[1])
        results = await stream.until_results(len(oracle.results))
    finally:
        stream.stop()
    changed = step_pipe({"tumbling": "20s"}, fields=FIELDS | {"worst": "sum(delay)"})
    whole = await command_json(*arguments_of(stream, changed, ALL), "--json")
    assert {change["path"]: [change["kept"], change["declared"]] for change in whole["changes"]} == {
        "fields.worst": ["max(delay)", "sum(delay)"],
        "window.tumbling": [None, 20],
        "window.size": [20, None],
        "window.every": [10, None],
    }
    assert whole["from"] is None
    sums = [body["total"] == body["worst"] for (end_ms, _), [body] in results.items() if not end_ms % SIZE_MS]
    assert (whole["equal"], whole["differing"]) == (sum(sums), len(sums) - sum(sums))
    assert whole["fields"] == {"worst": whole["differing"]}
    assert (whole["only_kept"], whole["only_declared"]) == ({"windows": len(results) - len(sums)}, {})
    counts: dict[str, int] = {}
    for (_, reason), number in oracle.refused.items():
        counts[reason] = counts.get(reason, 0) + number
    events = {(row["kept"], row["declared"]): row["events"] for row in whole["events"]}
    assert {reason: events[reason, reason] for reason in counts} == counts
    for example in whole["examples"]:
        place = time_ms(example["place"]["window_end"]), example["place"]["carrier"]
        assert example["kept"] == {name: results[place][0][name] for name in FIELDS}
    same = step_pipe(WINDOW)
    half = await command_json(*arguments_of(stream, same, middle), "--json")
    complete = {place for place in results if time_ms(half["from"]) < place[0] <= time_ms(half["until"])}
    assert half["changes"] == []
    assert 5 < half["equal"] == len(complete) < len(results)
    assert (half["differing"], half["only_kept"], half["only_declared"]) == (0, {}, {})
    audited = [entry.after for entry in await audit_entries(kafka, control)]
    assert audited[0] == {"compare": "carrier-delays", "since": ALL}


def test_the_tables_say_what_differs_and_where(capsys: pytest.CaptureFixture[str]) -> None:
    place = {"window_end": "2026-05-28T20:27:00.000Z", "carrier": "UA"}
    comparison = StepDifferences(
        [Change("fields.late", "count_if(delay >= 15)", "count_if(delay >= 30)")],
        Counter({("folded", "folded"): 12_000, ("late", "folded"): 3}),
        1_780_000_000_000,
        1_780_000_600_000,
        equal=120,
        differing=4,
        fields=Counter(late=4),
        only_declared=Counter(windows=7),
        examples=[
            ResultDifference(place, {"late": 3, "worst": None}, {"late": 2, "worst": None}),
            ResultDifference(place, None, {"late": 1}),
        ],
    )
    _print_comparison(comparison)
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "fields.late count_if(delay >= 15) count_if(delay >= 30)" in lines
    assert "12,000 in its windows in its windows" in lines
    assert "3 dead letter late in its windows" in lines
    assert "7 only in the file: no window of the other has this start and length" in lines
    assert "that end after 2026-05-28T20:26:40.000Z and up to 2026-05-28T20:36:40.000Z" in lines
    assert "carrier: UA worst: null worst: null" in lines
    assert "window_end: 2026-05-28T20:27:00.000Z - late: 1" in lines


async def test_what_cannot_be_compared_is_told_before_spark_starts(kafka: str, tmp_path: Path) -> None:
    stream = StateStream(kafka, tmp_path)
    await stream.create()

    async def refusal(pipe: Pipe, since: str = ALL, *options: str) -> str:
        command = [*arguments_of(stream, pipe, since), *options]
        result = await asyncio.to_thread(CliRunner().invoke, command_line(), command)
        assert result.exit_code == 1, result.output
        return " ".join(result.output.split())

    step = step_pipe(WINDOW)
    assert "the pipe flights is no step; its source is of the kind http" in await refusal(FLIGHTS)
    assert "has not begun it" in await refusal(step)
    other_name = step.model_copy(update={"pipe": "others"})
    assert "no step others is in force" in await refusal(other_name)
    producer = Producer(kafka, "test")
    await producer.start()
    progress = Progress("{}", "flights", 0, {0: 0})
    await producer.send_and_wait(stream.topics.folds, 0, [Record(b"carrier-delays", progress.encode(), [])])
    await producer.stop()
    stream_of_other = step_pipe(WINDOW, **{"from": OTHER})
    assert "reads flights, and by" in await refusal(stream_of_other)
    assert "no event of flights was enriched since 1s" in await refusal(step, "1s")
    await stream.enrich(complete_log().partitions)
    assert "records are more than 50: shorten --since" in await refusal(step, ALL, "--records", "50")
